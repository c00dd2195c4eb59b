"""How many processes a pool has, between two bounds: the decision by itself, and pools that follow it."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import shardq
from shardq import Queue
from shardq.cli.main import main
from shardq.pipelines import Pipeline
from shardq.pipelines.worker import PipelinePlan
from shardq.tasks.app import TaskPlan
from shardq.worker import PoolReport, WorkerOptions, WorkerPool, pool, scaling
from shardq.worker.process import WorkerPlan
from shardq.worker.scaling import COUNT_SECONDS, DOWN_SECONDS, UP_SECONDS, DueMessages, Scaling
from shardq.worker.slot import Slot

FLOW = (
    Pipeline("flow")
    .link("in", "between", lambda message: message.body)
    .link("between", "out", lambda message: message.body)
    .output("out")
)


class Look(NamedTuple):
    due: int = 0
    done: int = 0  # since the look before
    idle: int = 0


QUIET, BUSY, BEHIND = Look(idle=1), Look(due=5, done=100), Look(due=500, done=100)


def follow(looks: list[Look], *, least: int = 1, most: int = 8, processes: int = 1) -> list[int]:
    """How many processes there are after each look, 10 seconds apart."""
    decided, handled, found = Scaling(least, most), 0, []
    for number, (due, done, idle) in enumerate(looks):
        handled += done
        processes = decided.decide(
            number * COUNT_SECONDS, due=due, handled=handled, processes=processes, idle=idle
        )
        found.append(processes)
    return found


@pytest.mark.parametrize(
    ("looks", "start", "then"),
    [
        ([BEHIND] * 2, 1, [1, 1]),
        ([BEHIND] * 12, 1, [1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 6]),
        ([BEHIND] * 6, 7, [7, 7, 8, 8, 8, 8]),
        ([BEHIND, BEHIND, BUSY, BEHIND, BEHIND, QUIET] * 2, 2, [2] * 12),
        (
            [Look(due=1)] * 4,
            4,
            [4, 4, 5, 5],
        ),  # no more processes than messages, and one that takes long is no pace
        ([Look(due=101, done=100)] * 3, 2, [2, 2, 3]),
        ([Look(due=100, done=100)] * 9, 2, [2] * 9),
        ([BUSY] * 9, 3, [3] * 9),
        ([QUIET] * 15, 3, [3] * 6 + [2] * 7 + [1] * 2),
        ([QUIET] * 30, 1, [1] * 30),
        ([QUIET] * 6 + [BUSY] + [QUIET] * 6, 3, [3] * 13),
        ([Look(idle=0)] * 9, 3, [3] * 9),  # all of them are at work
    ],
    ids=range(12),
)
def test_processes_are_added_when_too_much_is_due_for_long_and_retired_when_nothing_is_for_longer(
    looks: list[Look], start: int, then: list[int]
) -> None:
    assert follow(looks, processes=start) == then


def test_the_pace_is_that_of_the_time_that_has_passed() -> None:
    late = Scaling(1, 8)
    found = [
        late.decide(now, due=60, handled=handled, processes=1, idle=0)
        for now, handled in [(0, 0), (15, 60), (60, 390), (80, 490), (90, 540), (100, 590)]
    ]  # in 10 seconds 40, 73, 50, 50, 50
    assert found == [1, 1, 1, 1, 1, 2]


COUNTS = st.lists(
    st.tuples(st.floats(0.1, 100), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 8)), max_size=60
)


@given(COUNTS, st.integers(1, 4), st.integers(0, 8))
def test_in_every_history_it_stays_within_its_bounds_and_changes_are_far_apart(
    looks: list[tuple[float, int, int, int]], least: int, more: int
) -> None:
    decided, processes, now, handled, changed = Scaling(least, least + more), least, 0.0, 0, float("-inf")
    for seconds, due, done, idle in looks:
        now, handled = now + seconds, handled + done
        wanted = decided.decide(now, due=due, handled=handled, processes=processes, idle=min(idle, processes))
        assert least <= wanted <= least + more
        if wanted > processes:
            assert due > 0
            assert wanted - processes <= max(1, processes // 2)
            assert now - changed >= UP_SECONDS
        if wanted < processes:
            assert (due, wanted) == (0, processes - 1)
            assert now - changed >= DOWN_SECONDS
        if wanted != processes:
            processes, changed = wanted, now


@given(st.integers(1, 8), st.integers(0, 8))
def test_a_load_that_stays_ends_at_a_bound(least: int, more: int) -> None:
    assert follow([BEHIND] * 60, least=least, most=least + more, processes=least)[-1] == least + more
    assert follow([QUIET] * 60, least=least, most=least + more, processes=least + more)[-1] == least


@pytest.mark.parametrize("processes", [(0, 3), (3, 1), (1, 5000), (1, 2, 3), "1..8", (1.0, 2), True])
def test_bounds_that_mean_nothing_are_refused(processes: object, url: str) -> None:
    with pytest.raises(shardq.InvalidSetting, match="processes="):
        WorkerPool(url, "jobs", "handlers:nothing", processes=processes)  # type: ignore[arg-type]


def test_the_command_line_takes_one_number_or_two(url: str) -> None:
    for text, why in {"1..x": "'1..x' is not a number", "5..2": "processes=2 is out of range"}.items():
        done = CliRunner().invoke(main, ["--url", url, "work", "jobs", "--handler", "m:f", "-p", text])
        assert why in f"{done.output}{done.exception}"


def test_what_is_due_is_counted_over_all_queues_and_not_in_paused_ones(
    url: str, client: shardq.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, count in {"a": 3, "b": 4, "c": 5}.items():
        client.create_queue(name).producer().send_many([b"x"] * count)
    client.queue("b").pause()
    client.queue("a").producer().send(b"later", delay=60)
    counting = DueMessages(url, ("a", "b", "c"), 0.01)
    assert counting.take() is None
    counting.start()
    try:
        assert wait_for(counting) == 8
        client.delete_queue("c")  # the workers leave it out
        while wait_for(counting) == 8:
            time.sleep(0.01)
        assert (wait_for(counting), caplog.text) == (3, "")
        for name in ("a", "b"):
            client.delete_queue(name)
        while not caplog.records:
            time.sleep(0.01)
        assert "due messages were not counted, so the pool stays as it is: queue 'c'" in caplog.text
    finally:
        counting.close()
        for thread in threading.enumerate():
            if thread.name == "shardq-due-messages":
                thread.join()


def wait_for(counting: DueMessages) -> int:
    while (due := counting.take()) is None:
        time.sleep(0.01)
    return due


def test_pools_of_tasks_and_pipelines_know_their_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    options = WorkerOptions()
    plan = TaskPlan(url="", handlers={}, options=options, tasks="tests.tasks.apps_for_tests", named=())
    assert plan.queues == ("sums",)
    assert WorkerPlan(url="", handlers={"a": print, "b": print}, options=options).queues == ("a", "b")
    flow = PipelinePlan(url="", handlers={}, options=options, pipeline="tests.worker.test_scaling:FLOW")
    assert flow.queues == ("in", "between")


def a_slot(url: str, handler: str, *, retired: bool = False) -> Slot:
    plan = WorkerPlan(url=url, handlers={"jobs": handler}, options=WorkerOptions(batch=10))
    return Slot(plan, "one", 3, retired=retired)


def look_until(slot: Slot, condition: str) -> None:
    for _ in range(3_000):
        slot.start_if_due()
        slot.supervise(None)
        if eval(condition, {"slot": slot}):
            return
        time.sleep(0.01)
    raise AssertionError(condition)


@pytest.mark.long
def test_a_process_that_is_retired_ends_what_it_has_begun_and_gives_back_the_rest(
    url: str, queue: Queue, handlers: str
) -> None:
    queue.producer().send_many([b"x"] * 20)
    slot = a_slot(url, f"{handlers}:slow", retired=True)
    slot.start_if_due()
    assert (slot.at_rest, slot.idle) == (True, False)
    slot.take_up()
    look_until(slot, "slot.child and slot.child.report.in_flight")
    slot.retire()
    look_until(slot, "slot.at_rest")
    first = slot.report
    counts = queue.counts()
    assert first.worked + counts.ready == 20
    assert (counts.in_flight, first.in_flight, slot.restarts, slot.finished) == (0, 0, 0, False)
    assert {message.deliveries for message in queue.peek(20)} == {0}
    slot.take_up()
    look_until(slot, f"slot.report.worked > {first.worked}")
    slot.stop(at_once=False)
    look_until(slot, "slot.at_rest and slot.finished")


@pytest.mark.long
def test_a_pool_grows_with_what_is_due_and_shrinks_when_it_is_done_and_loses_nothing(
    url: str, queue: Queue, handlers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "COUNT_SECONDS", 0.1)
    for name, seconds in {"COUNT_SECONDS": 0.1, "UP_SECONDS": 0.2, "DOWN_SECONDS": 0.3}.items():
        monkeypatch.setattr(scaling, name, seconds)
    queue.producer().send_many([b"x"] * 30)
    seen: list[int] = []

    def watch(report: PoolReport) -> None:
        seen.append(report.processes)
        if report.total.worked == 30 and report.processes == 1 and max(seen) == 3:
            workers.stop()

    workers = WorkerPool(
        url, "jobs", f"{handlers}:slow", processes=(1, 3), batch=2, prefetch=0, on_progress=watch
    )
    report = workers.run()
    assert (report.total.worked, report.total.in_flight, report.restarts, report.processes) == (30, 0, 0, 0)
    assert queue.peek() == []


def test_a_pool_with_bounds_ends_when_all_are_idle(url: str, queue: Queue, handlers: str) -> None:
    queue.producer().send_many([b"x"] * 10)
    workers = WorkerPool(url, "jobs", f"{handlers}:nothing", processes=(1, 50), idle_exit=0.3)
    for _ in range(2):  # a pool that has ended does nothing more
        report = workers.run()
        assert (report.total.worked, report.processes, report.restarts) == (10, 0, 0)


def test_a_pool_of_one_size_counts_nothing(
    url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch, handlers: str
) -> None:
    monkeypatch.setattr(pool, "DueMessages", None)
    assert WorkerPool(url, "jobs", f"{handlers}:nothing", processes=(1, 1), idle_exit=0).run().restarts == 0


def test_processes_that_have_ended_by_themselves_are_not_made_up_for() -> None:
    assert Scaling(3, 8).decide(0.0, due=0, handled=0, processes=1, idle=1) == 1
