"""What is wrong where tasks are made, sent, waited for or looked at is refused there, with its name and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.pipelines import PipelineWorker
from shardq.tasks import (
    ArgumentsRejected,
    CurrentTask,
    Middleware,
    Signature,
    TaskPool,
    Tasks,
    TaskWorker,
    chain,
)
from tests.tasks.sums import Sums


@pytest.fixture
def client(url: str) -> Iterator[shardq.Client]:
    """By the clock of the command line."""
    with shardq.connect(url) as client:
        yield client


@pytest.mark.parametrize(
    "make",
    [
        lambda sums: sums.add.then("x"),
        lambda sums: sums.add.then(second="x"),
        lambda sums: sums.add.then(second=None),
        lambda sums: sums.add.options(priority=1).then([1]),
    ],
)
def test_a_step_that_takes_something_else_is_refused_when_it_is_made(
    sums: Sums, make: Callable[[Sums], object]
) -> None:
    with pytest.raises(
        ArgumentsRejected, match=r"task 'add' takes \(first.* was given something else: .*send such arguments"
    ):
        make(sums)


@pytest.mark.parametrize("option", ["unique_key", "group"])
@pytest.mark.parametrize("function", [lambda order: order.id, lambda: "x", lambda order: order["customer"]])
def test_a_key_or_a_group_that_cannot_be_made_is_told_with_the_name_of_the_task(
    sums: Sums, client: shardq.Client, option: str, function: Callable[..., str]
) -> None:
    def bill(order: dict[str, str]) -> None: ...

    options: Any = {option: function}
    task: Any = sums.tasks.task(**options)(bill)
    with pytest.raises(ArgumentsRejected, match=f"{option} of task 'bill' cannot be made: .* raised [A-Z]"):
        task.send({"id": "1"})
    assert "tasks" not in client.queues()


def test_what_is_no_call_of_its_own_stops_a_bulk_send_as_anything_else_does(sums: Sums) -> None:
    def calls(wrong: Signature[Any]) -> Iterator[Signature[Any]]:
        yield from (sums.add.signature(each, 1) for each in range(2_000))
        yield wrong

    with pytest.raises(shardq.PartialSend, match="waits for the argument 'first'") as stopped:
        sums.tasks.send_many(calls(sums.add.then(2)))
    assert len(stopped.value.stored) == 2_000

    def breaking() -> Iterator[Signature[Any]]:
        yield from calls(sums.add.then(2))
        raise OSError("the file has ended")

    with pytest.raises(shardq.PartialSend) as stopped:
        sums.tasks.send_many(breaking())
    assert len(stopped.value.stored) == 2_000
    with pytest.raises(ArgumentsRejected, match="waits for the argument"):
        sums.tasks.send_many([sums.add.then(2)])


@pytest.mark.parametrize("timeout", ["5", -1, math.nan, True])
def test_a_timeout_that_is_none_is_refused_by_all_who_wait(sums: Sums, timeout: Any) -> None:
    for result in (sums.add.send(1, 2), chain(sums.add.signature(1, 2)).send()):
        with pytest.raises(shardq.InvalidSetting, match="timeout="):
            result.get(timeout=timeout)
        with pytest.raises(shardq.InvalidSetting, match="timeout="):
            result.wait(timeout=timeout)


@pytest.mark.parametrize(
    "path", ["#", "#x", "#-1", "#1.5", "#1#", "@", "@x", "@0#1", "@1@2#1", "#1@2", "#01", " "]
)
def test_an_id_with_a_wrong_path_is_refused_and_one_of_no_step_is_of_nothing(
    sums: Sums, url: str, path: str
) -> None:
    result = chain(sums.add.signature(1, 2), sums.add.then(3)).send()
    with pytest.raises(
        shardq.InvalidReceipt, match="is not a message id, and none of a task or step: give one as"
    ):
        sums.add.result(result.id + path)
    for command in ("show", "cancel", "retry"):
        told = CliRunner().invoke(main, ["--url", url, "task", command, result.id + path])
        assert told.exit_code == 2, told.output
        assert told.stderr.startswith("shardq: invalid_receipt: "), told.output


def test_a_step_that_the_plan_has_not_is_missing(sums: Sums, url: str) -> None:
    result = chain(sums.add.signature(1, 2), sums.add.then(3)).send()
    sums.tasks.drain()
    for path in ("#2", "#999999999", "#0#1", "@7#9"):
        assert sums.add.result(result.id + path).state == "missing"
        for command in ("show", "cancel"):
            told = CliRunner().invoke(main, ["--url", url, "task", command, result.id + path])
            assert (told.exit_code, "Traceback" in told.output) == (3, False), told.output


class Async(Middleware):
    async def around(self, task: CurrentTask, call: Callable[[], object]) -> object:
        return call()


class Before(Middleware):
    async def before(self, task: CurrentTask) -> None:  # type: ignore[override]
        pass


class After(Middleware):
    async def after(self, task: CurrentTask, value: object, error: object) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([Async()], r"around is async: calling it does not run it"),
        ([Before()], r"before is async: calling it does not run it"),
        ([After()], r"after is async: calling it does not run it"),
        (Middleware(), r"is not a list: give several"),
        (7, r"middleware=7 is not a list"),
        ([Middleware], r"give instances of classes"),
    ],
)
def test_middleware_that_would_not_run_is_refused(given: Any, text: str) -> None:
    with pytest.raises(shardq.InvalidSetting, match=text):
        Tasks(middleware=given)


@pytest.mark.parametrize("queues", ["tasks", b"tasks", 7, object()])
def test_what_is_no_list_of_queues_is_refused(
    sums: Sums, client: shardq.Client, url: str, queues: Any
) -> None:
    makers: list[Callable[[], object]] = [
        lambda: sums.tasks.drain(queues=queues),
        lambda: TaskWorker(sums.tasks, client, queues=queues),
        lambda: TaskPool(url, "shop", queues=queues),
    ]
    for make in makers:
        with pytest.raises(shardq.InvalidSetting, match="give a list of names, such as"):
            make()


@pytest.mark.parametrize("option", ["prefetch", "by_batch", "codec", "on_error"])
def test_an_option_that_workers_of_tasks_do_not_have_is_refused(
    sums: Sums, client: shardq.Client, url: str, option: str
) -> None:
    given: dict[str, Any] = {option: 5}
    for make in (lambda: TaskWorker(sums.tasks, client, **given), lambda: TaskPool(url, "shop", **given)):
        with pytest.raises(shardq.InvalidSetting, match=f"{option}: workers of tasks have no such option"):
            make()


@pytest.mark.parametrize("wrong", [None, "shop", 7, {}])
def test_what_is_no_app_no_pipeline_and_no_bucket_is_refused(
    sums: Sums, client: shardq.Client, wrong: Any
) -> None:
    with pytest.raises(shardq.InvalidSetting, match=r"give what shardq.tasks.Tasks\(\) made"):
        TaskWorker(wrong, client)
    with pytest.raises(shardq.InvalidSetting, match=r"give what shardq.pipelines.Pipeline\(\) made"):
        PipelineWorker(wrong, client)
    if wrong is not None:
        with pytest.raises(shardq.InvalidReceipt, match="is not a message id, and none of a task or step"):
            chain(sums.add.signature(1, 2)).send().steps(wrong)
