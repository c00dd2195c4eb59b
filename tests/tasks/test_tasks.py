"""Tasks as an application sends and runs them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import shardq
from shardq.tasks import (
    ArgumentsRejected,
    CurrentTask,
    Middleware,
    ResultMissing,
    ResultTimeout,
    RetryPolicy,
    Task,
    TaskCancelled,
    TaskFailed,
    Tasks,
    TaskTimeout,
    current_task,
)
from shardq.testing import ManualClock

untraced = pytest.mark.skipif(
    sys.gettrace() is not None, reason="what interrupts the task may interrupt the tracer"
)


@dataclasses.dataclass
class Address:
    street: str
    since: datetime


class Order(msgspec.Struct):
    id: uuid.UUID
    to: Address
    tags: set[str]


def test_a_task_that_was_sent_runs_with_its_arguments_and_its_result_can_be_had(tasks: Tasks) -> None:
    @tasks.task
    def add(first: int, second: int = 1, *more: int, factor: int = 1) -> int:
        return (first + second + sum(more)) * factor

    results = [add.send(1), add.send(1, 2), add.send(1, second=3), add.send(1, 2, 3, 4, factor=10)]
    assert [result.state for result in results] == ["waiting"] * 4
    assert tasks.drain().worked == 4
    assert [result.get(timeout=0) for result in results] == [2, 3, 4, 100]
    assert results[0].state == "done"
    assert add(1, 1) == 2


def test_arguments_and_results_have_the_types_that_the_function_declares(tasks: Tasks) -> None:
    seen: list[object] = []

    @tasks.task
    def ship(order: Order, on: datetime, notes: dict[str, list[bytes]]) -> Order:
        seen.append((order, on, notes))
        return order

    order = Order(uuid.uuid4(), Address("Main", datetime(2020, 1, 1, tzinfo=UTC)), {"a", "b"})
    on = datetime(2030, 1, 1, tzinfo=UTC)
    result = ship.send(order, on, {"x": [b"\x00\xff"]})
    tasks.drain()
    assert seen == [(order, on, {"x": [b"\x00\xff"]})]
    assert result.get(timeout=0) == order


def test_async_tasks_are_awaited_and_know_that_they_run(tasks: Tasks) -> None:
    @tasks.task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        names.append(current_task().name)
        return 2 * number

    @tasks.task
    async def plain(number: int) -> int:
        return number

    names: list[str] = []
    result = double.send(4)
    assert tasks.drain().worked == 1
    assert result.get(timeout=0) == 8
    assert double.call(5) == 10
    assert names == ["double", "double"]
    assert asyncio.run(plain(6)) == 6

    async def wait() -> int:
        return await result

    assert asyncio.run(wait()) == 8


def test_a_task_that_stops_the_event_loop_stops_no_other_one(tasks: Tasks) -> None:
    @tasks.task
    async def stop() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "went on"

    for _ in range(2):  # the second on a loop of its own
        result = stop.send()
        tasks.drain()
        assert result.get(timeout=0) == "went on"


def test_many_tasks_are_sent_in_one_bundle(tasks: Tasks, client: shardq.Client) -> None:
    @tasks.task(queue="sums")
    def square(number: int) -> int:
        return number * number

    results = square.send_many(square.signature(number) for number in range(300))
    assert len({result.id.split(":")[3] for result in results}) == 1
    assert client.queue("sums").counts().ready == 300
    assert tasks.drain().worked == 300
    assert [result.get(timeout=0) for result in results] == [number**2 for number in range(300)]


def test_what_a_function_does_not_take_is_refused_before_it_is_sent(
    tasks: Tasks, client: shardq.Client
) -> None:
    @tasks.task
    def add(first: int, second: int = 1) -> int:
        return first + second

    @tasks.task
    def anything(value: object) -> None: ...

    with pytest.raises(ArgumentsRejected, match="task 'add' does not take these arguments: missing"):
        add.send()  # type: ignore[call-overload]
    with pytest.raises(ArgumentsRejected, match=r"Expected `int`, got `str` - at `\$.first`"):
        add.send("1")  # type: ignore[call-overload]
    with pytest.raises(
        ArgumentsRejected, match=r"argument value=<object .* cannot be sent: an object has no form"
    ):
        anything.send(object())
    assert client.queues() == ()


def test_a_task_that_fails_is_tried_again_with_a_growing_delay_and_then_dead_lettered(
    tasks: Tasks, client: shardq.Client, clock: ManualClock
) -> None:
    @tasks.task(retry=RetryPolicy(attempts=3, delay=10, longest=10))
    def fails() -> None:
        raise OSError(f"delivery {current_task().deliveries}")

    result = fails.send()
    for _ in range(3):
        assert tasks.drain().failed == 1
        assert tasks.drain().failed == 0
        clock.advance(10)
    with pytest.raises(
        TaskFailed, match=f"task fails\\(\\), {result.id}, failed: OSError: delivery 3"
    ) as raised:
        result.get(timeout=0)
    failure = raised.value.failure
    assert (failure.kind, failure.text, failure.deliveries) == ("OSError", "delivery 3", 3)
    assert "in fails\n    raise OSError" in failure.traceback
    assert failure.call == "fails()"
    (dead,) = client.queue("tasks.dead").peek()
    assert dead.headers["shardq-reason"] == "OSError: delivery 3"


def test_the_failure_of_an_error_with_a_long_text_says_where_it_was_raised(
    tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    @tasks.task(retry=1)
    def charge() -> None:
        raise OSError("no money " * 300_000)

    result = charge.send()
    tasks.drain()
    with pytest.raises(TaskFailed) as raised:
        result.get(timeout=0)
    failure = raised.value.failure
    assert "in charge\n    raise OSError" in failure.traceback
    assert len(failure.text) == 2_000
    assert len(failure.traceback) < 4_000
    assert len(caplog.text) < 10_000


def test_a_failure_is_logged_with_its_task_its_arguments_and_only_the_frames_of_the_application(
    tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    @tasks.task(retry=1)
    def plain(text: str, *, words: list[str]) -> None:
        raise OSError("no disk")

    @tasks.task(retry=1)
    async def on_a_loop(text: str) -> None:
        await asyncio.sleep(0)
        raise OSError("no disk")

    ids = [plain.send("a\nb", words=["x"] * 99).id, on_a_loop.send("y" * 9_999).id]
    tasks.drain()
    told = {each.getMessage() for each in caplog.records if each.exc_info}
    assert len(told) == 2
    assert any(each.startswith("task plain(text='a\\nb', words=['x', ") and ids[0] in each for each in told)
    assert any(each.startswith("task on_a_loop(text='yyy") and ids[1] in each for each in told)
    assert max(map(len, told)) < 400
    assert caplog.text.count('File "') == 2
    assert "shardq/" not in caplog.text.replace(__file__, "")


def test_a_failure_begins_with_the_function_of_the_task_whatever_middleware_runs_around_it(
    client: shardq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    class Around(Middleware):
        def around(self, task: CurrentTask, call: Callable[[], object]) -> object:
            return call()

    class Breaks(Middleware):
        def before(self, task: CurrentTask) -> None:
            if task.name == "never":
                raise OSError("no disk")

    tasks = Tasks(middleware=[Around(), Breaks()])
    tasks.bind(client)

    @tasks.task(retry=1)
    def plain() -> None:
        raise OSError("no disk")

    @tasks.task(retry=1)
    async def on_a_loop() -> None:
        raise OSError("no disk")

    @tasks.task(retry=1)
    def never() -> None: ...

    def trace(task: Task[[], Any, None]) -> str:
        result = task.send()
        tasks.drain()
        with pytest.raises(TaskFailed) as raised:
            result.get(timeout=0)
        return raised.value.failure.traceback

    traces = [trace(plain), trace(on_a_loop)]
    assert [each.count('File "') for each in traces] == [1, 1]
    assert all("raise OSError" in each for each in traces)
    assert caplog.text.count('File "') == 2
    assert "in before\n    raise OSError" in trace(never)


def test_a_task_that_no_worker_takes_is_logged_by_its_name_and_without_a_traceback(
    tasks: Tasks, client: shardq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    theirs, changed = Tasks(), Tasks()
    for app in (theirs, changed):
        app.bind(client)

    @tasks.task
    def known(number: int) -> None: ...

    @theirs.task
    def unknown(number: int) -> None: ...

    @changed.task(name="known")
    def with_text(text: str) -> None: ...

    unknown.send(1)
    with_text.send("x")
    assert tasks.drain().dead_lettered == 2
    assert "task unknown, tasks:" in caplog.text
    assert "task known, tasks:" in caplog.text
    assert "Traceback" not in caplog.text


def test_errors_that_no_attempt_can_mend_are_not_tried_again(tasks: Tasks) -> None:
    @tasks.task(retry=RetryPolicy(never=(ValueError,)))
    def fails() -> None:
        raise ValueError("wrong")

    result = fails.send()
    assert tasks.drain().dead_lettered == 1
    assert result.state == "failed"


def test_outcomes_say_what_becomes_of_a_task(tasks: Tasks, clock: ManualClock) -> None:
    @tasks.task
    def decide(how: str) -> str:
        if current_task().deliveries == 2:
            return "at last"
        match how:
            case "snooze":
                raise shardq.Snooze(60)
            case "retry":
                raise shardq.Retry(60)
            case "discard":
                raise shardq.Discard("not needed")
            case _:
                raise shardq.DeadLetter("broken")

    results = {how: decide.send(how) for how in ("snooze", "retry", "discard", "dead letter")}
    report = tasks.drain()
    assert (report.snoozed, report.failed, report.discarded, report.dead_lettered) == (1, 2, 1, 1)
    assert {how: result.state for how, result in results.items()} == {
        "snooze": "waiting", "retry": "waiting", "discard": "failed", "dead letter": "failed",
    }  # fmt: skip
    with pytest.raises(TaskFailed, match="Discard: not needed"):
        results["discard"].get(timeout=0)
    with pytest.raises(TaskFailed, match="DeadLetter: broken"):
        results["dead letter"].get(timeout=0)
    clock.advance(60)
    tasks.drain()
    assert results["retry"].get(timeout=0) == "at last"


def test_a_task_that_asks_for_another_attempt_gets_no_more_than_it_has(
    tasks: Tasks, client: shardq.Client, clock: ManualClock
) -> None:
    @tasks.task(retry=2)
    def asks(how: str) -> object:
        outcome = shardq.Retry(60, reason="the bank is closed")
        if how == "returns":
            return outcome
        raise shardq.Retry(60) from OSError("no line")

    results = [asks.send(how) for how in ("returns", "raises")]
    reports = []
    for _ in range(2):
        reports.append(tasks.drain())
        clock.advance(60)
    assert [(each.failed, each.dead_lettered) for each in reports] == [(2, 0), (2, 2)]
    assert tasks.drain().failed == 0
    for result, why in zip(results, ("Retry: the bank is closed", "OSError: no line"), strict=True):
        with pytest.raises(TaskFailed, match=f"failed: {why}"):
            result.get(timeout=0)
    reasons = {each.headers["shardq-reason"] for each in client.queue("tasks.dead").peek()}
    assert reasons == {"the bank is closed", "OSError: no line"}


@untraced
def test_a_task_that_runs_for_too_long_is_interrupted(tasks: Tasks) -> None:
    @tasks.task(timeout=0.05, retry=1)
    def spin() -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass

    @tasks.task(timeout=0.05, retry=1)
    async def sleep() -> None:
        await asyncio.sleep(60)

    results = [spin.send(), sleep.send()]
    assert tasks.drain().dead_lettered == 2
    for result in results:
        with pytest.raises(TaskFailed) as raised:
            result.get(timeout=0)
        assert raised.value.failure.kind == "TaskTimeout"
    with pytest.raises(TaskTimeout):
        spin.call()


@untraced
@pytest.mark.parametrize("timeout", [0.01, 60.0])
def test_a_timeout_is_that_of_the_task_also_within_another_one_that_it_calls(
    tasks: Tasks, timeout: float
) -> None:
    def is_left(seconds: float) -> bool:
        return any(getattr(each, "interval", None) == seconds for each in threading.enumerate())

    @tasks.task(timeout=timeout)
    def inner() -> None:
        while is_left(0.05) or (timeout < 60 and is_left(timeout)):
            with suppress(BaseException):
                time.sleep(0.001)

    @tasks.task(timeout=0.05)
    def outer() -> str:
        with suppress(Exception):
            inner.call()
        return "it went on"

    for _ in range(2):
        with pytest.raises(TaskTimeout, match=r"0\.05"):
            outer.call()


@untraced
def test_a_timeout_of_a_task_ends_all_that_it_calls_at_once(tasks: Tasks) -> None:
    went_on = []

    @tasks.task(timeout=60.0)
    def inner() -> None:
        while True:
            time.sleep(0.001)

    @tasks.task(timeout=50.0)
    def middle() -> None:
        with suppress(Exception):
            inner.call()
        went_on.append("middle")

    @tasks.task(timeout=0.05)
    def outer() -> None:
        middle.call()

    with pytest.raises(TaskTimeout, match=r"0\.05"):
        outer.call()
    assert not went_on


@untraced
def test_a_timeout_waits_for_a_thread_that_is_being_started_which_would_be_ended_in_its_place(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tasks.task(timeout=60.0)
    def inner() -> None:
        while True:
            time.sleep(0.001)

    @tasks.task(timeout=0.05)
    def outer() -> None:
        inner.call()

    timers: list[threading.Timer] = []
    sent = []

    def slow(timer: threading.Timer) -> None:
        if timers:
            sent.append(timers[0].finished.wait(0.2))
        timers.append(timer)
        threading.Thread.start(timer)

    monkeypatch.setattr(threading.Timer, "start", slow)
    with pytest.raises(TaskTimeout, match=r"0\.05"):
        outer.call()
    assert sent == [False]


@untraced
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_function_whose_time_is_over_calls_other_tasks_while_it_tidies_up(
    tasks: Tasks, timeout: float | None
) -> None:
    done = []

    @tasks.task(timeout=timeout)
    def tidy() -> str:
        return "tidied up"

    @tasks.task(timeout=0.05)
    def outer() -> None:
        try:
            while True:
                time.sleep(0.001)
        finally:
            done.append(tidy.call())
            done.append("all of it")

    with pytest.raises(TaskTimeout, match=r"0\.05"):
        outer.call()
    assert done == ["tidied up", "all of it"]


@untraced
def test_a_timeout_that_is_over_before_the_function_begins_is_one_of_the_task(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tasks.task(timeout=0.01, retry=1)
    def quick() -> None:
        pass

    def slow(timer: threading.Timer) -> None:
        threading.Thread.start(timer)
        while not timer.finished.is_set():
            time.sleep(0)

    monkeypatch.setattr(threading.Timer, "start", slow)
    result = quick.send()
    assert tasks.drain().dead_lettered == 1
    with pytest.raises(TaskFailed, match="TaskTimeout"):
        result.get(timeout=0)


class _TimerByHand:
    """A timer that is over when the test says so."""

    last: _TimerByHand

    def __init__(self, _seconds: float, over: Callable[[], None]) -> None:
        self.over, self.started, self.daemon = over, False, False
        _TimerByHand.last = self

    def start(self) -> None:
        self.started = True

    def cancel(self) -> None: ...


def _over_at(moment: int) -> Callable[..., Any]:
    """A tracer that lets the last timer be over at a moment: a step of what calls the function, as they are counted."""
    left = moment

    def trace(frame: types.FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        nonlocal left
        code = frame.f_code
        if "contextlib" not in code.co_filename and "calling.py" not in code.co_filename:
            return None
        if code.co_name not in ("send", "end") and _TimerByHand.last.started:
            left -= 1
            if left == 0:
                _TimerByHand.last.over()
        return trace

    return trace


@untraced
@pytest.mark.parametrize("fails", [False, True])
def test_a_timeout_is_one_of_the_task_whatever_step_it_comes_between(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    @tasks.task(timeout=60)
    def quick() -> int:
        if fails:
            raise OSError("the disk is full")
        return 7

    monkeypatch.setattr(threading, "Timer", _TimerByHand)
    ended: list[str] = []
    for moment in range(1, 100):
        _TimerByHand(0, lambda: None)
        sys.settrace(_over_at(moment))
        try:
            ended.append(str(quick.call()))
        except (OSError, TaskTimeout) as error:
            ended.append(type(error).__name__)
        finally:
            sys.settrace(None)
    before, after = "TaskTimeout", "OSError" if fails else "7"
    assert set(ended) == {before, after}
    assert ended == sorted(ended, key=[before, after].index)


def test_options_of_a_call_override_those_of_the_task(
    tasks: Tasks, client: shardq.Client, clock: ManualClock
) -> None:
    order: list[str] = []

    @tasks.task(queue="one", priority=3)
    def note(what: str) -> None:
        order.append(what)

    note.options(delay=60).send("late")
    note.options(queue="two").send("elsewhere")
    note.options(priority=9).send("last")
    note.send("first")
    assert tasks.drain(queues=["one"]).worked == 2
    clock.advance(60)
    assert tasks.drain(queues=["one", "two"]).worked == 2
    assert order[:2] == ["first", "last"]
    assert sorted(order[2:]) == ["elsewhere", "late"]


def test_a_task_with_a_unique_key_waits_once_and_both_senders_get_its_result(tasks: Tasks) -> None:
    runs: list[int] = []

    @tasks.task(unique_key=lambda user, again: f"user-{user}")
    def report(user: int, again: bool) -> int:
        runs.append(user)
        return user

    @tasks.task(unique_key=True)
    def alike(user: int) -> None:
        runs.append(-user)

    first, second, other = report.send(1, again=False), report.send(1, again=True), report.send(2, False)
    assert first.id == second.id != other.id
    assert alike.send(3).id == alike.send(user=3).id != alike.send(4).id
    tasks.drain()
    assert sorted(runs) == [-4, -3, 1, 2]
    assert second.get(timeout=0) == 1
    assert report.send(1, again=True).id != first.id


def test_tasks_of_a_group_run_in_order_and_a_failure_holds_back_those_behind(
    tasks: Tasks, clock: ManualClock
) -> None:
    runs: list[str] = []

    @tasks.task(group=lambda customer, step: customer, retry=RetryPolicy(delay=5))
    def step(customer: str, step: int) -> None:
        if (customer, step, current_task().deliveries) == ("ada", 1, 1):
            raise OSError
        runs.append(f"{customer}{step}")

    step.send_many(step.signature(customer, number) for number in range(3) for customer in ("ada", "bob"))
    tasks.drain()
    assert sorted(runs) == ["ada0", "bob0", "bob1", "bob2"]
    clock.advance(5)
    tasks.drain()
    assert runs[-2:] == ["ada1", "ada2"]


def test_progress_is_seen_while_the_task_runs(tasks: Tasks) -> None:
    seen: list[object] = []

    @tasks.task
    def work() -> None:
        current_task().progress({"done": 1, "of": 3})
        current_task().progress("left out")
        seen.append((results[0].progress(), results[0].state))
        current_task().progress("nearly", at_once=True)

    results = [work.send()]
    assert results[0].progress() is None
    tasks.drain()
    assert seen == [({"done": 1, "of": 3}, "running")]
    assert results[0].progress() == "nearly"


def test_a_task_that_waits_is_cancelled_and_does_not_run(tasks: Tasks, client: shardq.Client) -> None:
    @tasks.task
    def work() -> int:
        raise AssertionError

    result = work.send()
    assert result.cancel()
    assert result.cancel()
    assert tasks.drain().handled == 0
    assert client.queue("tasks").peek() == []
    assert result.state == "cancelled"
    with pytest.raises(TaskCancelled):
        result.get(timeout=0)


def test_a_cancel_that_was_cut_off_can_be_repeated(
    tasks: Tasks, client: shardq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tasks.task
    def work() -> int:
        raise AssertionError

    result = work.send()
    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(tasks.task_client, "remove", _interrupted)
        result.cancel()
    assert result.cancel()
    assert client.queue("tasks").peek() == []


def _interrupted(_task: str) -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize("when", ["while it runs", "while it begins"])
def test_ctrl_c_cancels_an_async_task_before_its_message_is_released(
    tasks: Tasks, client: shardq.Client, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    held: list[int] = []
    runs = threading.Event()
    begin = asyncio.run_coroutine_threadsafe

    def begin_and_interrupt(*coroutine_and_loop: Any) -> None:
        monkeypatch.undo()
        begin(*coroutine_and_loop)
        assert runs.wait(60)
        raise KeyboardInterrupt

    @tasks.task
    async def work() -> None:
        runs.set()
        if when == "while it runs":
            os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(3_600)
        finally:
            held.append(client.queue("tasks").counts().in_flight)

    work.send()
    if when == "while it begins":
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", begin_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        tasks.drain()
    counts = client.queue("tasks").counts()
    assert (held, counts.ready, counts.in_flight) == ([1], 1, 0)


def test_a_running_task_finds_out_that_it_was_cancelled_and_its_value_is_dropped(tasks: Tasks) -> None:
    @tasks.task
    def checks() -> None:
        assert not current_task().read_cancelled()
        assert results[0].cancel()
        assert current_task().read_cancelled()
        current_task().check()
        raise AssertionError

    @tasks.task
    def returns() -> int:
        assert results[1].cancel()
        return 1

    results = [checks.send(), returns.send()]
    report = tasks.drain()
    assert (report.worked, report.discarded, report.failed) == (1, 1, 0)
    assert [result.state for result in results] == ["cancelled"] * 2


def test_a_task_that_has_ended_cannot_be_cancelled(tasks: Tasks) -> None:
    @tasks.task
    def work() -> int:
        return 1

    result = work.send()
    tasks.drain()
    assert not result.cancel()
    assert result.get(timeout=0) == 1


def test_a_result_is_kept_for_its_time_and_removed_after_that(
    tasks: Tasks, client: shardq.Client, clock: ManualClock
) -> None:
    @tasks.task(keep_result=60)
    def work() -> int:
        return 1

    result, other = work.send(), work.send()
    tasks.drain()
    assert other.get(timeout=0) == 1
    other.forget()
    assert other.state == "missing"
    assert tasks.task_client.results.remove_old() == 0
    clock.advance(59)
    assert result.get(timeout=0) == 1
    clock.advance(1)
    with pytest.raises(ResultMissing, match="its result was kept for 60 seconds"):
        result.get(timeout=0)
    assert tasks.task_client.results.remove_old() == 1
    assert client.queue("_shardq/tasks/results").peek() == []
    assert client.queues() == ("tasks", "tasks.dead")


def test_a_task_without_a_result_stores_nothing_of_it(tasks: Tasks, client: shardq.Client) -> None:
    @tasks.task(keep_result=0)
    def work() -> int:
        return 1

    result = work.send()
    tasks.drain()
    assert client.queues("_shardq/") == ()
    with pytest.raises(ResultMissing, match="keep_result is 0"):
        result.get()


def test_a_result_that_does_not_come_in_time_is_a_typed_error(tasks: Tasks) -> None:
    @tasks.task
    def work() -> int:
        return 1

    result = work.send()
    with pytest.raises(ResultTimeout, match="has not ended within 0 seconds"):
        result.get(timeout=0)
    with pytest.raises(ResultTimeout):
        result.get(timeout=0.1)


def test_what_has_left_the_queue_without_a_result_is_missing(tasks: Tasks, client: shardq.Client) -> None:
    @tasks.task
    def work() -> int:
        return 1

    result = work.send()
    client.queue("tasks").purge()
    with pytest.raises(ResultMissing, match="no longer in its queue"):
        result.get(timeout=0)


def test_middleware_runs_around_every_task_in_its_order(client: shardq.Client) -> None:
    seen: list[str] = []

    class Noted(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        def before(self, task: CurrentTask) -> None:
            seen.append(f"{self.name} before {task.name}")

        def after(self, task: CurrentTask, value: object, error: BaseException | None) -> None:
            seen.append(f"{self.name} after {value!r} {error!r}")
            raise RuntimeError("is logged")

    tasks = Tasks(middleware=[Noted("a"), Noted("b")])
    tasks.bind(client)

    @tasks.task
    async def double(number: int) -> int:
        return 2 * number

    result = double.send(2)
    tasks.drain()
    assert seen == ["a before double", "b before double", "b after 4 None", "a after 4 None"]
    assert result.get(timeout=0) == 4


def test_an_argument_that_is_declared_as_object_may_be_anything(tasks: Tasks) -> None:
    @tasks.task
    def count(first: object, rest: list[object], at: object = None) -> int:
        return len([first, *rest, at])

    results = [count.send(each, [each, 1], at=each) for each in (1, "x", None, [2], {"a": [None]})]
    tasks.drain()
    assert [each.get(timeout=0) for each in results] == [4] * 5


def test_a_task_sends_others_by_the_client_of_its_worker(tasks: Tasks) -> None:
    @tasks.task
    def child(number: int) -> int:
        return number

    @tasks.task
    def parent() -> list[str]:
        return [child.send(number).id for number in range(3)]

    result = parent.send()
    assert tasks.drain().worked == 4
    assert [child.result(each).get(timeout=0) for each in result.get(timeout=0)] == [0, 1, 2]


def test_what_an_app_has_not_opened_stays_open_and_bound_when_it_is_closed(url: str) -> None:
    app = Tasks(url)

    @app.task
    def add(first: int, second: int) -> int:
        return first + second

    assert add.send(1, 2).state == "waiting"
    app.close()
    assert add.send(1, 2).state == "waiting"  # it is opened again
    with shardq.connect(url) as client:
        app.bind(client)
        app.close()
        app.close()
        assert app.task_client.client is client
        assert add.send(1, 2).state == "waiting"
    app.close()
