"""Django's tasks are kept in queues of shardq, and run by its workers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.utils import timezone

import shardq
from shardq.base.codec import MSGPACK
from shardq.django.backend import ShardqBackend, backend_named
from shardq.django.calls import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from shardq.tasks import RetryPolicy
from tests.django_app.conftest import backend_of
from tests.django_app.shop import tasks
from tests.django_app.shop.models import Order

ROOT = Path(shardq.__file__).parents[1]


def drain(alias: str = "default") -> int:
    return backend_of(alias).app.drain().worked


def test_a_task_runs_in_a_worker_and_its_result_can_be_read_anywhere(backend: ShardqBackend) -> None:
    order = Order.objects.create(item="tea")
    result = tasks.thank.enqueue(order_id=order.pk)
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
    waiting = backend.get_result(result.id)
    assert waiting == result
    assert drain() == 1
    result.refresh()
    assert result.status is TaskResultStatus.SUCCESSFUL
    assert result.return_value == "Thank you for the tea!"
    assert (result.args, result.kwargs, result.attempts) == ([], {"order_id": order.pk}, 1)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert tasks.thank.get_result(result.id).task == tasks.thank
    assert Order.objects.get().thanked


def test_a_task_may_be_async_and_is_enqueued_and_read_by_coroutines(backend: ShardqBackend) -> None:
    async def main() -> str:
        return (await tasks.double.aenqueue(21)).id

    sent = asyncio.run(main())
    drain()
    assert asyncio.run(tasks.double.aget_result(sent)).return_value == 42


def test_a_task_gets_its_context(backend: ShardqBackend) -> None:
    result = tasks.attempt.enqueue(of="tea")
    drain()
    result.refresh()
    assert result.return_value == ["tea", 1, result.id]


def test_a_task_that_failed_keeps_its_errors(backend: ShardqBackend) -> None:
    result = tasks.thank.enqueue(4711)
    assert drain() == 0
    result.refresh()
    assert result.status is TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class_path.endswith("models.Order.DoesNotExist")
    assert "Order.objects.get" in error.traceback
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="failed"):
        result.return_value  # noqa: B018
    assert backend.app.task_client.client.queue("mail.dead").counts().ready == 1


def test_a_value_that_is_no_json_fails_its_task_and_an_argument_its_sender(backend: ShardqBackend) -> None:
    result = tasks.unwritable.enqueue()
    drain()
    result.refresh()
    assert result.errors[0].exception_class is TypeError
    with pytest.raises(TypeError):
        tasks.double.enqueue(object())


def test_a_task_is_tried_as_often_as_the_backend_says(files: Path) -> None:
    backend = backend_of("patient")
    lucky, unlucky = tasks.second_time_lucky.enqueue(), tasks.never.enqueue()
    queue = backend.app.task_client.client.queue("shop/patient")
    queue.alter(retry_delay=0, max_retry_delay=0)
    drain("patient")
    lucky.refresh()
    unlucky.refresh()
    assert (lucky.return_value, lucky.attempts, len(lucky.errors)) == ("now", 2, 1)
    assert (unlucky.status, unlucky.attempts, len(unlucky.errors)) == (TaskResultStatus.FAILED, 2, 2)


def test_a_task_that_waits_for_another_attempt_is_ready_and_has_its_error(files: Path) -> None:
    backend = backend_of("patient")
    result = tasks.never.enqueue()
    backend.app.task_client.client.queue("shop/patient").alter(retry_delay=600, max_retry_delay=600)
    drain("patient")
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.READY, 1, 1)
    assert (result.finished_at, result.last_attempted_at) == (None, result.started_at)


def test_a_task_runs_after_its_time_and_by_its_priority(backend: ShardqBackend) -> None:
    later = tasks.double.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    ids = [tasks.double.using(priority=priority).enqueue(1).id for priority in (-100, 0, 100)]
    client = backend.app.task_client.client
    assert [client.queue("default").get(each).priority for each in ids] == [9, 5, 0]
    assert drain() == 3
    later.refresh()
    assert later.status is TaskResultStatus.READY
    assert later.task.run_after > timezone.now()


SIGNALS = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}


@contextmanager
def received(fails: bool = False) -> Iterator[list[tuple[str, str]]]:
    """Record the signals that are sent within the block: the name of each, and the status of its task."""
    seen: list[tuple[str, str]] = []

    def receiver_of(name: str) -> Callable[..., None]:
        def receive(*, task_result: Any, **_: Any) -> None:
            seen.append((name, task_result.status.value))
            if fails:
                raise OSError("no mail")

        return receive

    receivers = {signal: receiver_of(name) for name, signal in SIGNALS.items()}
    for signal, each in receivers.items():
        signal.connect(each, weak=False)
    try:
        yield seen
    finally:
        for signal, each in receivers.items():
            signal.disconnect(each)


@pytest.mark.parametrize("fails", [False, True])
def test_the_signals_of_django_are_sent_and_a_receiver_that_fails_is_no_failure(
    backend: ShardqBackend, fails: bool
) -> None:
    with received(fails) as seen:
        results = [tasks.double.enqueue(1)]
        drain()
        results.append(tasks.thank.enqueue(4711))
        drain()
    expected = ["READY", "RUNNING", "SUCCESSFUL", "READY", "RUNNING", "FAILED"]
    assert seen == list(zip(["enqueued", "started", "finished"] * 2, expected, strict=True))
    assert [backend.get_result(each.id).status for each in results] == ["SUCCESSFUL", "FAILED"]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("slow", "shardq.tasks.errors.TaskTimeout"),
        ("slow_coroutine", "shardq.tasks.errors.TaskTimeout"),
        ("leave", "builtins.SystemExit"),
        ("give_up", "shardq.client.outcome.DeadLetter"),
        ("never", "builtins.ValueError"),
    ],
)
def test_a_task_that_ends_for_good_has_failed_by_its_error(
    files: Path, options: dict[str, Any], name: str, path: str
) -> None:
    options |= {"timeout": 0.1, "retry": 5 if name == "give_up" else 1}
    with received() as seen:
        result = getattr(tasks, name).enqueue()
        drain("patient")
    result.refresh()
    assert (result.status, result.attempts, seen[-1]) == ("FAILED", 1, ("finished", "FAILED"))
    (error,) = result.errors
    assert (error.exception_class_path, result.finished_at is None) == (path, False)
    assert path.rpartition(".")[2] in error.traceback.splitlines()[-1]
    assert "shardq/tasks/calling.py" not in error.traceback


@pytest.mark.parametrize("retry", [None, 9, RetryPolicy(attempts=9), RetryPolicy(never=(ValueError,))])
def test_the_last_attempt_is_that_of_the_policy_or_of_the_queue(
    files: Path, options: dict[str, Any], retry: Any
) -> None:
    options["retry"] = retry
    backend_of("patient").app.task_client.client.create_queue(
        "shop/patient", retry_delay=0, max_retry_delay=0, max_deliveries=2
    )
    with received() as seen:
        tasks.never.enqueue()
        drain("patient")
    attempts = 1 if isinstance(retry, RetryPolicy) and retry.never else 2
    assert [name for name, _ in seen] == ["enqueued", *["started"] * attempts, "finished"]


@pytest.mark.parametrize(
    "result_id", ["nonsense", "default:0:0:0197c8a2b4d07abc8123456789abcdef:0", "none:0:0:x:1"]
)
def test_a_result_that_is_not_there_does_not_exist(backend: ShardqBackend, result_id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(result_id)


@pytest.mark.parametrize("backend_queues", [["default", "mail"], []])
def test_the_id_of_something_else_is_no_result_and_defines_no_task(
    files: Path, monkeypatch: pytest.MonkeyPatch, backend_queues: list[str]
) -> None:
    monkeypatch.setitem(settings.TASKS["default"], "QUEUES", backend_queues)
    backend = backend_of("default")
    client, before = backend.app.task_client.client, list(backend.app.tasks)
    for name in ("orders", "mail"):
        for body in (b"tea", MSGPACK.encode({"order": 7})):
            other = client.create_queue(name, exist_ok=True).producer().send(body)
            with pytest.raises(TaskResultDoesNotExist):
                backend.get_result(other)
    assert list(backend.app.tasks) == before


def test_without_results_none_can_be_asked_for(files: Path) -> None:
    backend = ShardqBackend("silent", {"OPTIONS": {"keep_result": 0}})
    assert not backend.supports_get_result
    with pytest.raises(NotImplementedError):
        backend.get_result("default:0:0:0197c8a2b4d07abc8123456789abcdef:0")


def test_a_missing_store_is_found_by_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDQ_URL", raising=False)
    assert list(ShardqBackend("default", {}).check()) == []
    monkeypatch.setattr(settings, "SHARDQ_URL", "")
    (error,) = ShardqBackend("default", {}).check()
    assert "SHARDQ_URL" in error.hint


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"retry": 0}, "retry=0"),
        ({"keep_result": "a day"}, "keep_result='a day'"),
        ({"timeout": -1}, "timeout=-1"),
    ],
)
def test_a_wrong_option_is_named_with_its_backend(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"^TASKS\['default'\]: {told}"):
        ShardqBackend("default", {"OPTIONS": options})


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"'retries'.*keep_result, prefix, retry, timeout, url"):
        ShardqBackend("default", {"OPTIONS": {"retries": 3}})
    with pytest.raises(CommandError, match="nowhere"):
        call_command("shardq_work", backend="nowhere")


def test_a_backend_of_others_is_no_backend_of_shardq(monkeypatch: pytest.MonkeyPatch) -> None:
    with suppress(AttributeError):  # it was not used
        del task_backends["default"]
    monkeypatch.setattr(task_backends, "create_connection", lambda alias: object())
    with pytest.raises(ImproperlyConfigured, match="ShardqBackend"):
        backend_named("default")
    del task_backends["default"]


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "django", "shardq_work", "mail", "--idle-exit", "0", "--log-format", "json"],
        ["-m", "shardq", "work", "--tasks", "shardq.django.worker:default", "--idle-exit", "0"],
    ],
    ids=["manage.py", "shardq work"],
)
def test_a_process_of_its_own_runs_the_tasks(backend: ShardqBackend, files: Path, command: list[str]) -> None:
    order = Order.objects.create(item="tea")
    result = tasks.thank.enqueue(order.pk)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "tests.django_app.settings",
    }
    ended = subprocess.run(
        [sys.executable, *command], env=environment, stderr=subprocess.PIPE, check=True, timeout=60
    )
    result.refresh()
    assert result.return_value == "Thank you for the tea!"
    assert result.worker_ids[0].split("-")[-1].isdigit()
    assert b"working on tasks of shardq.django.worker:default" in ended.stderr
    assert b" worked" in ended.stderr
