"""What the checker says of workflows, and of the messages and runs of their steps."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import shardq
from shardq.tasks import TaskWorker
from tools.faults.assignment import Assignment
from tools.faults.dial import Dial
from tools.faults.flowing import Running
from tools.faults.flows import KINDS, expected, judge_flows, make_tasks, make_workflow
from tools.faults.history import Delivery, Event, Phase

ONE, OTHER = "chain-b1-0", "chord-b1-1"


class Script:
    """Operations one after the other."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._at = itertools.count(1)

    def order(self, name: str, phase: Phase = Phase.OK) -> None:
        self._event("order", Phase.INVOKE, (name,))
        self._event("order", phase, (name,), note=f"id of {name}")

    def end(self, name: str, note: str = "", *, again: str = "") -> None:
        delivery = Delivery(name, f"id of {name}{again}", 0, 0, 0)
        self._event("end-flow", Phase.OK, (name,), [delivery], note or expected(name))

    def see_end(self, name: str) -> None:
        self._event("see-end", Phase.OK, (f"id of {name}",))

    def take(self, name: str, step: int, message: str, *, by: str = "r1.1") -> None:
        delivery = Delivery(f"id of {name}#{step}", message, 5, 0, 1)
        self._event("take-step", Phase.OK, deliveries=[delivery], by=by)

    def run(self, name: str, step: int, *, by: str = "r1.1") -> None:
        self._event("run-step", Phase.OK, (f"id of {name}#{step}",), by=by)

    def verdict(self) -> dict[str, int]:
        found = judge_flows(self.events)
        assert all(each.histories and all(each.histories.values()) for each in found)
        return {each.promise: each.count for each in found}

    def _event(
        self,
        verb: str,
        phase: Phase,
        bodies: tuple[str, ...] = (),
        deliveries: Sequence[Delivery] = (),
        note: str = "",
        by: str = "b1.1",
    ) -> None:
        self.events.append(
            Event(
                at=next(self._at),
                actor=by,
                number=1,
                verb=verb,
                phase=phase,
                bodies=bodies,
                deliveries=tuple(deliveries),
                note=note,
            )
        )


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_checker_expects_is_what_a_worker_makes_of_it(
    shardq_client: shardq.Client, kind: str
) -> None:
    app, name = make_tasks(), f"{kind}-b1-4"
    app.bind(shardq_client)
    result = make_workflow(app, name, "steps").send(name=name)
    app.drain(queues=["steps"])
    (view,) = app.workflows()
    value = f" {result.get(timeout=0)}" if view.state == "done" else ""
    assert f"{view.state}{value}" == expected(name)


def test_a_step_may_be_delivered_and_run_again_until_its_workflow_has_ended(script: Script) -> None:
    script.order(ONE)
    script.order(OTHER, Phase.UNKNOWN)
    for worker in ("r1.1", "r2.1"):
        script.take(ONE, 0, "message", by=worker)
        script.run(ONE, 0, by=worker)
    script.see_end(ONE)
    script.run(ONE, 0, by="r2.1")  # which it received before
    script.take(ONE, 0, "sent late")  # and sees that it is done
    script.end(ONE)
    assert script.verdict() == {}


def test_a_workflow_that_was_sent_ends_once_and_with_its_result(script: Script) -> None:
    for name in ("chain-b1-0", "chain-b1-5", "chain-b1-10", "failing-b1-4"):
        script.order(name)
    script.order(OTHER, Phase.FAILED)
    script.end("chain-b1-5", "running")
    script.end("chain-b1-10")
    script.end("chain-b1-10", again=" again")
    script.end("failing-b1-4", "done 3")
    script.end(OTHER)
    assert script.verdict() == {
        "workflow lost": 1,
        "workflow that does not end": 1,
        "workflow begun twice": 1,
        "workflow with a wrong result": 1,
        "workflow that nobody sent": 1,
    }


def test_a_step_runs_of_one_message_and_not_when_its_workflow_has_ended(script: Script) -> None:
    script.order(ONE)
    script.take(ONE, 1, "message")
    script.run(ONE, 1)
    script.take(ONE, 1, "other", by="r2.1")
    script.run(ONE, 1, by="r2.1")
    script.see_end(ONE)
    script.take(ONE, 2, "another")
    script.run(ONE, 2)
    script.end(ONE)
    assert script.verdict() == {"step of two messages": 1, "step run when all had ended": 1}


def test_a_worker_that_a_full_disk_has_ended_is_started_again(
    client: shardq.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[shardq.ShardqError] = [shardq.StoreUnavailable("the disk is full", retryable=False)]

    def run(worker: TaskWorker) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(TaskWorker, "run", run)
    client.create_queue("steps")
    dial = tmp_path / "dial"
    assignment = Assignment(
        role="run", name="r1", seed=1, url="", queue="steps", log=str(tmp_path / "log"), dial=str(dial)
    )
    Running(assignment, Dial(dial), client, threading.Event()).run()
    assert not errors
