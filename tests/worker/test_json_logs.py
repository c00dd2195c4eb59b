"""Workers can log what came of each message, as lines of JSON."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.tasks import Tasks, TaskWorker
from shardq.worker import JsonFormatter, JsonLog, MessageEvents, ShellCommand, Worker

ROOT = Path(shardq.__file__).parents[1]


class Lines(logging.Handler):
    """Keeps what a formatter makes of records."""

    def __init__(self, formatter: JsonFormatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))

    def of(self, logger: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["logger"] == logger]


@pytest.fixture
def lines() -> Iterator[Lines]:
    yield from logged(JsonFormatter())


def logged(formatter: JsonFormatter) -> Iterator[Lines]:
    handler, logger = Lines(formatter), logging.getLogger("shardq")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (None, "worked"),
        (ValueError("no tea"), "failed"),
        (shardq.Retry(), "retry"),
        (shardq.Snooze(60), "snooze"),
        (shardq.Discard(), "discard"),
        (shardq.DeadLetter(), "dead_letter"),
    ],
)
def test_an_event_says_what_came_of_a_message(
    url: str, lines: Lines, ending: Exception | None, outcome: str
) -> None:
    def handler(message: shardq.Message) -> None:
        if ending is not None:
            raise ending

    with shardq.connect(url, hooks=MessageEvents()) as client:
        queue = client.create_queue("orders", retry_delay=60)
        sent = queue.producer().send(b"secret tea")
        Worker(queue, handler, idle_exit=0).run()
    (event,) = lines.of("shardq.messages")
    assert event["level"] == ("WARNING" if outcome == "failed" else "INFO")
    assert 0 <= event.pop("duration") < 60
    assert event.pop("time").endswith("Z")
    del event["level"], event["logger"], event["message"]
    error = {"error": "ValueError: no tea"} if outcome == "failed" else {}
    assert event == {"queue": "orders", "id": sent, "delivery": 1, "outcome": outcome} | error
    assert "secret" not in json.dumps(lines.lines)


def test_an_error_without_a_text_is_logged_by_its_type(url: str, lines: Lines) -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def handler(message: shardq.Message) -> None:
        raise SilentError

    with shardq.connect(url, hooks=MessageEvents()) as client:
        queue = client.create_queue("orders", max_deliveries=1)
        queue.producer().send(b"tea")
        Worker(queue, handler, idle_exit=0).run()
        (letter,) = client.queue("orders.dead").peek()
    (event,) = lines.of("shardq.messages")
    assert (event["outcome"], event["error"]) == ("failed", "SilentError")
    assert letter.headers["shardq-reason"] == "SilentError"


def test_each_message_of_a_batch_has_an_event(url: str, lines: Lines) -> None:
    with shardq.connect(url, hooks=MessageEvents()) as client:
        queue = client.create_queue("orders")
        ids = queue.producer().send_many([b"a", b"b"])
        Worker(queue, lambda batch: None, by_batch=True, idle_exit=0).run()
    assert {event["id"] for event in lines.of("shardq.messages")} == set(ids)


@pytest.mark.parametrize("bodies", [False, True])
def test_a_failed_task_is_called_by_its_id_unless_bodies_are_asked_for(url: str, bodies: bool) -> None:
    events = logged(JsonFormatter(bodies=bodies))
    lines = next(events)
    with shardq.connect(url, hooks=MessageEvents(bodies=bodies)) as client:
        tasks = Tasks()
        tasks.bind(client)

        @tasks.task(name="charge", retry=1)
        def charge(card: str) -> None:
            raise ValueError("refused")

        sent = charge.send("card 4711")
        TaskWorker(tasks, client, threads=0, idle_exit=0).run()
    next(events, None)
    (event,) = lines.of("shardq.messages")
    (failure,) = lines.of("shardq.worker.attempt")
    assert (event["task"], event["id"], event["outcome"]) == ("charge", sent.id, "failed")
    assert failure["id"] == sent.id
    assert failure["traceback"].endswith("ValueError: refused")
    assert ("4711" in json.dumps(lines.lines)) == bodies
    assert ("4711" in event.get("body", "")) == bodies


def test_a_body_is_logged_up_to_a_length_and_a_large_one_is_not(url: str, tmp_path: Path) -> None:
    events = logged(JsonFormatter(bodies=True))
    lines = next(events)
    (tmp_path / "film").write_bytes(b"f" * 2_000_000)
    with shardq.connect(url, hooks=MessageEvents(bodies=True)) as client:
        queue = client.create_queue("orders")
        queue.producer().send(b"\xff" + b"t" * 10_000)
        queue.producer().send_file(tmp_path / "film")
        Worker(queue, lambda message: None, idle_exit=0).run()
    next(events, None)
    small, large = sorted(lines.of("shardq.messages"), key=lambda event: "body" not in event)
    assert small["body"].startswith("\\xfft")
    assert len(small["body"]) < 2_100
    assert "body" not in large


def test_what_is_no_json_is_written_all_the_same() -> None:
    class Unprintable:
        def __repr__(self) -> str:
            raise ValueError

    nested: list[Any] = []
    nested.append(nested)
    fields = {"ok": {1, 2}, "path": Path("/tmp"), "half": "\udc80", "nested": nested, "odd": Unprintable()}
    record = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": "sold \udc80", **fields})
    found = json.loads(JsonFormatter().format(record))
    assert found["odd"] == "<Unprintable>"
    assert found["half"] == "'\\udc80'"
    assert set(found) == {"time", "level", "logger", "message", *fields}


HANDLERS = """
import logging

def handle(message):
    logging.getLogger("shop").info("sold", extra={"price": 3})
    if message.body == b"bad":
        raise ValueError("no tea")
"""


def test_the_work_command_writes_nothing_but_lines_of_json_to_stderr(url: str, tmp_path: Path) -> None:
    with shardq.connect(url) as client:
        client.create_queue("orders").producer().send_many([b"good", b"bad"])
    (tmp_path / "json_handlers.py").write_text(HANDLERS)
    command = [sys.executable, "-m", "shardq", "--url", url, "work", "orders", "--idle-exit", "0"]
    ended = subprocess.run(
        [*command, "--handler", "json_handlers:handle", "--log-format", "json"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stderr=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    events = [line for line in lines if line["logger"] == "shardq.messages"]
    assert [event["outcome"] for event in events] == ["worked", "failed"]
    assert [line["price"] for line in lines if line["logger"] == "shop"] == [3, 3]
    assert lines[-1]["logger"] == "shardq.work"
    assert "1 message worked" in lines[-1]["message"]


def test_a_command_without_output_of_its_own_logs_as_json_too(url: str, tmp_path: Path) -> None:
    with shardq.connect(url) as client:
        client.create_topic("news").publish(b"rain")
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "shardq",
            "--url",
            url,
            "topic",
            "relay",
            "news",
            "--once",
            "--log-format",
            "json",
        ],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stderr=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    assert [json.loads(line)["message"] for line in ended.stderr.splitlines()] == ["1 envelope relayed"]


def test_commands_are_logged_as_handlers_are(url: str, lines: Lines) -> None:
    with shardq.connect(url, hooks=JsonLog().hooks) as client:
        queue = client.create_queue("orders", retry_delay=60)
        queue.producer().send(b"tea")
        Worker(queue, ShellCommand("exit 75"), idle_exit=0).run()
    (event,) = lines.of("shardq.messages")
    assert (event["outcome"], event["error"]) == ("failed", "CommandFailed: exit code 75")
