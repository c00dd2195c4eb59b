"""Child processes that work together."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

import shardq
from shardq.worker.child_processes import ChildProcesses, Parent, ProcessFailed


def give(parent: Parent, value: Any) -> Any:
    return value


def meet(parent: Parent) -> float:
    return parent.ready()


def count_up(parent: Parent) -> int:
    number = 0
    while not parent.wait(0.01):
        parent.report(number)
        number += 1
    return number


def never_end(parent: Parent) -> None:
    while True:
        time.sleep(60)


def raise_error(parent: Parent, error: Exception) -> None:
    raise error


def kill_itself(parent: Parent) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def give_function(parent: Parent) -> Any:
    return lambda: None


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.long
def test_results_come_in_the_order_of_the_starts() -> None:
    with ChildProcesses() as processes:
        for number in range(3):
            processes.start(f"process {number}", give, number)

        assert processes.results() == [0, 1, 2]
        assert processes.running == {}


def test_processes_go_on_when_all_are_ready() -> None:
    before = time.monotonic()
    with ChildProcesses() as processes:
        processes.start("early", meet)
        processes.start("late", meet)
        moments = processes.results()

    assert before < min(moments) and max(moments) < time.monotonic()
    assert processes.started_at is not None


@pytest.mark.long
def test_reports_are_heard_until_a_process_that_is_told_to_end_has_ended() -> None:
    with ChildProcesses() as processes:
        processes.start("counter", count_up)
        heard = []
        while len(heard) < 3:
            heard += processes.listen(1.0)
        processes.stop("counter")
        while processes.running:
            heard += processes.listen(1.0)

        assert heard == [("counter", number) for number in range(len(heard))]
        assert processes.results() == [len(heard)]


def test_the_block_leaves_no_process_behind() -> None:
    with ChildProcesses(patience=0.1) as processes:
        processes.start("counter", count_up)
        processes.start("deaf", never_end)
        processes.listen(60)
        pids = processes.running.values()

    assert len(pids) == 2 and not any(map(runs, pids))


@pytest.mark.parametrize(
    ("work", "arguments", "text"),
    [
        (raise_error, [ValueError("no such thing")], "actor failed: ValueError: no such thing"),
        (raise_error, [SystemExit(3)], "actor ended with exit code 3"),
        (kill_itself, [], "actor was killed by signal 9"),
        (give_function, [], r"actor failed: \w+Error: "),
    ],
)
def test_a_process_that_fails_is_named_with_the_reason(work: Any, arguments: list[Any], text: str) -> None:
    with pytest.raises(ProcessFailed, match=text), ChildProcesses() as processes:
        processes.start("idler", count_up)
        processes.start("actor", work, *arguments)
        while True:
            processes.listen(1.0)


@pytest.mark.long
def test_an_error_of_shardq_is_the_cause() -> None:
    with pytest.raises(ProcessFailed) as raised, ChildProcesses() as processes:
        processes.start("actor", raise_error, shardq.QueueNotFound("queue 'x' does not exist"))
        processes.results()

    assert isinstance(raised.value.cause, shardq.QueueNotFound)
    assert "raise_error" in raised.value.trace


def test_who_is_not_ready_in_time_is_named() -> None:
    with pytest.raises(ProcessFailed, match=r"^late not ready after 0 s"), ChildProcesses() as processes:
        processes.start("early", give, 1)
        processes.start("late", never_end)
        while "early" in processes.running:
            processes.listen(1.0)
        processes.results(start_seconds=0)
