"""Failures are logged however a program, or the module of a handler, configures logging."""

from __future__ import annotations

import logging
import logging.config
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq import Message, Queue
from shardq.tasks import Tasks, TaskWorker
from shardq.worker import Worker, WorkerPool

FILE = """
[loggers]
keys=root
[handlers]
keys=err
[formatters]
keys=
[logger_root]
level=INFO
handlers=err
[handler_err]
class=StreamHandler
args=(sys.stderr,)
"""


def by_dict(_: Path) -> None:
    handlers = {"err": {"class": "logging.StreamHandler"}}
    logging.config.dictConfig(
        {"version": 1, "handlers": handlers, "root": {"handlers": ["err"], "level": "INFO"}}
    )


def by_file(folder: Path) -> None:
    (folder / "logging.ini").write_text(FILE)
    logging.config.fileConfig(folder / "logging.ini")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, loggers = logging.root, list(logging.root.manager.loggerDict.values())
    handlers, level, factory = list(root.handlers), root.level, logging.getLogRecordFactory()
    disabled = [each for each in loggers if isinstance(each, logging.Logger) and each.disabled]
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.setLogRecordFactory(factory)
    for each in loggers:
        if isinstance(each, logging.Logger):
            each.disabled = each in disabled


@pytest.mark.parametrize("configure", [by_dict, by_file])
@pytest.mark.parametrize("within", [False, True], ids=["before", "in the handler"])
def test_a_failure_is_logged_after_logging_was_configured(
    queue: Queue,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    configure: Callable[[Path], None],
    within: bool,
) -> None:
    queue.producer().send(b"x")
    if not within:
        configure(tmp_path)

    def handle(_: Message) -> None:
        if within:
            configure(tmp_path)
        raise ValueError("boom")

    assert Worker(queue, handle, idle_exit=0, retry_delay=60).run().failed == 1
    assert "ValueError: boom" in capsys.readouterr().err


def test_the_failure_of_a_task_is_logged_after_logging_was_configured(
    queue: Queue, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = Tasks(url)

    @tasks.task
    def fail() -> None:
        by_dict(tmp_path)
        raise ValueError("boom")

    fail.send()
    assert TaskWorker(tasks, tasks.task_client.client, idle_exit=0).run().failed == 1
    assert "ValueError: boom" in capsys.readouterr().err


def test_a_pool_logs_what_becomes_of_its_processes_and_they_log_failures(
    queue: Queue, url: str, tmp_path: Path, handlers: str, capfd: pytest.CaptureFixture[str]
) -> None:
    by_dict(tmp_path)
    queue.alter(visibility_timeout=0.5, max_deliveries=2)
    queue.producer().send(b"x")
    report = WorkerPool(url, "jobs", f"{handlers}:configure_logging_and_fail", idle_exit=0.5).run()
    assert report.total.failed
    assert "ValueError: boom" in capfd.readouterr().err


def test_a_level_silences_shardq(queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue.producer().send(b"x")
    by_dict(tmp_path)
    logger = logging.getLogger("shardq")
    logger.setLevel(logging.CRITICAL)

    def handle(_: Message) -> None:
        raise ValueError("boom")

    try:
        Worker(queue, handle, idle_exit=0, retry_delay=60).run()
    finally:
        logger.setLevel(logging.NOTSET)
    assert "boom" not in capsys.readouterr().err


def test_no_module_has_a_logger_that_a_configuration_disables() -> None:
    texts = {file: file.read_text() for file in Path(shardq.__file__).parent.rglob("*.py")}
    assert [
        file for file, text in texts.items() if re.search(r"^_\w+ = logging\.getLogger", text, re.M)
    ] == []


def breaks(*_: object, **__: object) -> Any:
    raise RuntimeError("the log is broken")


def broken_handler() -> None:
    handler = logging.Handler()
    handler.emit = breaks  # type: ignore[method-assign]
    logging.root.addHandler(handler)


def broken_filter() -> None:
    handler = logging.StreamHandler()
    handler.addFilter(breaks)
    logging.root.addHandler(handler)


def broken_records() -> None:
    logging.setLogRecordFactory(breaks)


@pytest.mark.parametrize("break_it", [broken_handler, broken_filter, broken_records])
def test_a_worker_continues_when_the_log_raises(
    queue: Queue, capsys: pytest.CaptureFixture[str], break_it: Callable[[], None]
) -> None:
    # Given a handler of messages that spoils the log and fails
    queue.producer().send_many([b"breaks", b"good"])

    def handle(message: Message) -> None:
        if message.body == b"breaks":
            break_it()
            raise ValueError("boom")

    # When it is worked
    report = Worker(queue, handle, idle_exit=0, retry_delay=60).run()
    # Then the message has failed like any other, and stderr says what is wrong with the log
    assert (report.worked, report.failed, report.in_flight) == (1, 1, 0)
    assert "RuntimeError: the log is broken" in capsys.readouterr().err


def test_a_record_names_the_line_that_wrote_it(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.producer().send(b"x")
    Worker(queue, lambda _: 1 / 0, idle_exit=0, retry_delay=60).run()
    (record,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert (record.filename, record.funcName) == ("attempt.py", "_log_ending")
