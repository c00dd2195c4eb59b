"""What the checker says of what is built on queues: subscriptions, schedules, large bodies, workflows."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.core.large import bodies
from shardq.storage.opening import open_store
from tests.faults.written_history import Script
from tools.faults.defects import DEFECTS
from tools.faults.films import audit_films, create_films, films_queue, judge_films
from tools.faults.flows import KINDS, expected, judge_flows, make_tasks, make_workflow
from tools.faults.history import Delivery, Event, Phase
from tools.faults.offence import Offence
from tools.faults.published import judge_published
from tools.faults.sqlite_target import SqliteTarget
from tools.faults.ticks import judge_ticks

DAY, NIGHT = "week.day u1-1", "week.night u1-2"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ONE, OTHER = "chain-b1-0", "chord-b1-1"
FAILED, UNKNOWN = Phase.FAILED, Phase.UNKNOWN


class Built(Script):
    """Operations one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._at = itertools.count(1)

    def did(
        self,
        verb: str,
        *bodies: str,
        phase: Phase = Phase.OK,
        ends: dict[str, Any] | None = None,
        by: str = "u1.1",
    ) -> Self:
        named = {"bodies": bodies}
        self.operation(verb, by, next(self._at), phase=phase, begins=named, ends=named | (ends or {}))
        return self

    def saw(self, verb: str, *found: Delivery, by: str = "u1.1", **more: Any) -> Self:
        self.event(verb, by, next(self._at), Phase.OK, number=1, deliveries=found, **more)
        return self

    def publish(self, *bodies: str, phase: Phase = Phase.OK) -> Self:
        for body in bodies:
            self.did("publish", body, phase=phase)
        return self

    def hear(self, subscription: str, *bodies: str, copy: int = 1) -> Self:
        identity = f"_shardq/topics/faults1/{subscription}/life:0:0:{copy}"
        return self.saw("hear", *(Delivery(each, f"{identity}:{each}", 5, 0, 1) for each in bodies))

    def tick(self, *seconds: float, identity: str = "", late: float = 0.0) -> Self:
        for second in seconds:
            moment = NOON + timedelta(seconds=second)
            sent = int((moment.timestamp() + late) * 1e6)
            self.saw("tick", Delivery(moment.isoformat(), identity or str(second), 5, sent, 1))
        return self

    def end_schedule(self, *, after: int) -> Self:
        return self.saw("ticked", note=str(after))

    def film(self, *verbs: str, phase: Phase = Phase.OK, identity: str = "one") -> Self:
        """What became of a large body: ``film`` is a send, what is not a verb is what was read."""
        for verb in verbs:
            if verb in ("film", "pass", "watched"):
                self.did(verb, "f1-1", phase=phase)
            else:
                self.saw("watch", Delivery("f1-1", identity, 5, 0, 1))
                self.did("view", "f1-1", phase=phase, ends={"note": verb})
        return self

    def order(self, *names: str, phase: Phase = Phase.OK) -> Self:
        for name in names:
            self.did("order", name, phase=phase, ends={"note": f"id of {name}"})
        return self

    def end(self, name: str, note: str = "", *, again: str = "") -> Self:
        given = Delivery(name, f"id of {name}{again}", 0, 0, 0)
        return self.saw("end-flow", given, bodies=(name,), note=note or expected(name))

    def see_end(self, name: str) -> Self:
        return self.saw("see-end", bodies=(f"id of {name}",))

    def take(self, name: str, step: int, message: str, *, by: str = "r1.1") -> Self:
        return self.saw("take-step", Delivery(f"id of {name}#{step}", message, 5, 0, 1), by=by)

    def run(self, name: str, step: int, *, by: str = "r1.1") -> Self:
        return self.saw("run-step", bodies=(f"id of {name}#{step}",), by=by)


def script() -> Built:
    return Built()


def late_ticks() -> Built:
    history = script()
    for second, late in [(0, 0), (1, 0.3), (30, 0.9), (31, 40), (72, 0)]:
        history.tick(second, late=late)
    return history.tick(72).end_schedule(after=5)


def burst() -> Built:
    history = script()
    for second in range(60):
        history.tick(second, late=60 - second)
    return history


def ended_badly() -> Built:
    """Workflows that were lost, do not end, began twice, end wrongly, and were never sent."""
    history = script().order("chain-b1-0", "chain-b1-5", "chain-b1-10", "failing-b1-4")
    history.order(OTHER, phase=FAILED).end("chain-b1-5", "running").end("chain-b1-10")
    return history.end("chain-b1-10", again=" again").end("failing-b1-4", "done 3").end(OTHER)


def steps_again() -> Built:
    """A step is delivered and run again, by who received it before the workflow had ended."""
    history = script().order(ONE).order(OTHER, phase=UNKNOWN)
    for worker in ("r1.1", "r2.1"):
        history.take(ONE, 0, "message", by=worker).run(ONE, 0, by=worker)
    return history.see_end(ONE).run(ONE, 0, by="r2.1").take(ONE, 0, "sent late").end(ONE)


def steps_too_often() -> Built:
    """A step runs of two messages, and another one after the end."""
    history = script().order(ONE).take(ONE, 1, "message").run(ONE, 1).take(ONE, 1, "other", by="r2.1")
    history.run(ONE, 1, by="r2.1").see_end(ONE).take(ONE, 2, "another").run(ONE, 2)
    return history.end(ONE)


Judge = Callable[[Sequence[Event]], list[Offence]]
CASES: dict[str, tuple[Judge, Built, dict[str, int]]] = {
    "a subscription gets what it takes, also several times under one id": (
        judge_published,
        script().publish(DAY, NIGHT).hear("all", DAY, NIGHT).hear("all", DAY).hear("nights", NIGHT),
        {},
    ),
    "what was published for sure and did not come is lost": (
        judge_published,
        script().publish(DAY, NIGHT).publish("week.night u1-3", phase=UNKNOWN).hear("all", DAY, NIGHT),
        {"published and lost": 1},
    ),
    "what was not published, and what a filter leaves out": (
        judge_published,
        script().publish(DAY).publish(NIGHT, phase=FAILED).hear("all", DAY, NIGHT).hear("nights", DAY),
        {"received against its filter": 2},
    ),
    "a message under two ids was copied twice": (
        judge_published,
        script().publish(DAY).hear("all", DAY).hear("all", DAY, copy=2),
        {"published twice": 1},
    ),
    "occurrences may be left out and be late": (judge_ticks, late_ticks(), {}),
    "an occurrence that took place and never came is lost": (
        judge_ticks,
        script().tick(0).end_schedule(after=3),
        {"occurrences lost": 2},
    ),
    "an occurrence under two ids took place twice": (
        judge_ticks,
        script().tick(0, identity="one").tick(0, identity="other"),
        {"one occurrence twice": 1},
    ),
    "occurrences closer than the period": (
        judge_ticks,
        script().tick(0, 0.4),
        {"occurrences closer than their pace": 1},
    ),
    "all that was missed sent at once": (judge_ticks, burst(), {"a burst of occurrences": 48}),
    "a large body is read whole, moved, and gone once it is acked": (
        judge_films,
        script().film("film", "whole", "pass").film("whole", "watched", "gone", identity="two"),
        {},
    ),
    "a large body whose send is unknown may be gone": (judge_films, script().film("film", phase=UNKNOWN), {}),
    "a large body that nobody read is lost": (judge_films, script().film("film"), {"large body lost": 1}),
    "a large body that is cut": (
        judge_films,
        script().film("film", "whole", "cut: 3 of 5 bytes", "watched"),
        {"large body cut": 1},
    ),
    "a large body that is gone before its message": (
        judge_films,
        script().film("film", "gone", "whole", "watched"),
        {"large body gone before its message": 1},
    ),
    "a large body that nobody sent": (
        judge_films,
        script().film("whole", "watched"),
        {"large body of nobody": 1},
    ),
    "a large body under two ids that was not moved": (
        judge_films,
        script().film("film", "whole").film("whole", identity="two"),
        {"large body stored twice": 1},
    ),
    "a step may be delivered and run again until its workflow has ended": (judge_flows, steps_again(), {}),
    "a workflow that was sent ends once and with its result": (
        judge_flows,
        ended_badly(),
        {
            "workflow lost": 1,
            "workflow that does not end": 1,
            "workflow begun twice": 1,
            "workflow with a wrong result": 1,
            "workflow that nobody sent": 1,
        },
    ),
    "a step of two messages, and one after the end": (
        judge_flows,
        steps_too_often(),
        {"step of two messages": 1, "step run when all had ended": 1},
    ),
}


@pytest.mark.parametrize(("judge", "history", "broken"), CASES.values(), ids=CASES)
def test_what_is_built_on_queues_keeps_its_promises_or_is_named(
    judge: Judge, history: Built, broken: dict[str, int]
) -> None:
    found = judge(history.events)
    assert {each.promise: each.count for each in found} == broken
    assert all(each.histories and all(each.histories.values()) for each in found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_that_the_checker_expects_is_the_one_of_a_worker(client: shardq.Client, kind: str) -> None:
    app, name = make_tasks(), f"{kind}-b1-4"
    app.bind(client)
    result = make_workflow(app, name, "steps").send(name=name)
    app.drain(queues=["steps"])
    (view,) = app.workflows()
    value = f" {result.get(timeout=0)}" if view.state == "done" else ""
    assert f"{view.state}{value}" == expected(name)


@pytest.mark.parametrize("defect", ["", "KeepsParts"])
def test_parts_that_a_sweep_keeps_are_named(
    tmp_path: Path, defect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "PART_BYTES", 100)
    target = SqliteTarget(tmp_path)
    target.start()
    try:
        store = open_store(target.url, SystemClock())
        with shardq.Client(DEFECTS[defect](store) if defect else store) as client:
            create_films(client, "q", 5.0)
            queue = client.queue(films_queue("q"))
            for _ in range(2):
                queue.producer().send_stream(io.BytesIO(bytes(3_000)))
            queue.consumer().receive(1)[0].ack()
            queue.purge()
        assert bool(audit_films(target, "q", defect)) is bool(defect)
    finally:
        target.stop()
