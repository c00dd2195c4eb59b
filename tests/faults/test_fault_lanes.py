"""Deeds that take their time go on beside the schedule, and leave each other alone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shardq
from tools.faults.assignment import Assignment
from tools.faults.dial import Dial
from tools.faults.faults import Faults
from tools.faults.lanes import Lanes
from tools.faults.nemesis import Nemesis
from tools.faults.schedule import Step
from tools.faults.stage import Stage

ASSIGNMENT = Assignment(role="", name="", seed=0, log="", dial="", url="", queue="jobs")


def step(fault: str, seconds: float = 0.0) -> Step:
    return Step(0.0, fault, 0.0, seconds, 0.0)


class Process:
    """Stands for a client's process."""

    def __init__(self) -> None:
        self.signals: list[signal.Signals] = []
        self.runs = self.is_stopped = True
        self.role, self.name = "work", "w1.1"
        self.assignment = ASSIGNMENT

    def send(self, what: signal.Signals) -> None:
        self.signals.append(what)
        self.is_stopped = what is signal.SIGSTOP

    def end(self, how: signal.Signals) -> None:
        self.signals.append(how)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    found = Stage(tmp_path, ASSIGNMENT, "seed")
    started: Any = lambda *_: SimpleNamespace(role="work", name="w1.2", runs=True)  # noqa: E731
    monkeypatch.setattr("tools.faults.stage.Actor", started)
    yield found


def one_worker(stage: Stage) -> tuple[Any, Faults]:
    """A client of a machine that can be suspended, and the faults that hit it."""
    actor: Any = Process()
    stage.actors.append(actor)
    stage.dials["w1"] = Dial(stage.folder / "w1.dial")
    target: Any = SimpleNamespace(goes_by_client_clock=True, huge=1)
    faults = Faults(target, stage, None, "jobs", lambda _: None)  # type: ignore[arg-type]
    return actor, faults


def test_a_deed_that_takes_long_does_not_hold_up_those_of_other_lanes() -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def do(each: Step) -> None:
        if each.fault == "purge_many":
            assert go_on.wait(60)
        done.append(each.fault)
        begun.set()

    lanes = Lanes(do)
    assert all(lanes.take(step(name)) for name in ("purge_many", "recreate_bystander", "kill_consumer"))
    assert begun.wait(60) and done == ["kill_consumer"] and not lanes.are_free()
    go_on.set()
    lanes.finish()
    assert done == ["kill_consumer", "purge_many", "recreate_bystander"]  # one queue: one after the other


def test_what_is_done_at_once_stays_in_the_schedule() -> None:
    assert not Lanes(lambda _: None).take(step("pause_consumer"))


def test_a_mistake_in_a_deed_ends_the_campaign() -> None:
    def do(_: Step) -> None:
        raise ZeroDivisionError

    lanes = Lanes(do)
    lanes.take(step("kill_consumer"))
    with pytest.raises(ZeroDivisionError):
        lanes.finish()


def test_a_pause_that_ends_does_not_wake_a_suspended_machine(stage: Stage) -> None:
    actor, faults = one_worker(stage)
    _, end_the_pause = faults.pause_consumer(step("pause_consumer"))
    _, wake = faults.suspend_machine(step("suspend_machine"))
    end_the_pause()
    assert actor.signals == [signal.SIGSTOP, signal.SIGSTOP]
    wake()
    assert actor.signals[-1] is signal.SIGCONT and stage.dials["w1"].asleep > 0


def test_no_client_is_replaced_while_the_machine_is_suspended(stage: Stage) -> None:
    actor, faults = one_worker(stage)
    _, wake = faults.suspend_machine(step("suspend_machine"))
    lanes = Lanes(lambda each: faults.kill_consumer(each) and None)
    lanes.take(step("kill_consumer"))
    assert not lanes.are_free() and stage.actors == [actor]
    wake()
    lanes.finish()
    assert actor.signals == [signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL]
    assert [each.name for each in stage.actors] == ["w1.2"]


def test_a_client_that_two_faults_replace_has_one_successor(stage: Stage) -> None:
    actor: Any = Process()
    stage.actors.append(actor)
    stage.replace(actor, signal.SIGKILL)
    stage.replace(actor, signal.SIGTERM)
    assert actor.signals == [signal.SIGKILL] and len(stage.actors) == 1


def test_clients_that_do_not_finish_are_ended_and_did_not_die(stage: Stage) -> None:
    actor: Any = Process()
    stage.actors.append(actor)
    stage.kill("work")
    assert actor.signals == [signal.SIGKILL] and stage.deaths() == []


def test_a_deed_that_another_fault_prevents_is_done_when_that_is_over(tmp_path: Path) -> None:
    answers: list[Exception | None] = [shardq.StoreUnavailable("the disk is full"), None]

    def purge_many(_: Step) -> tuple[str, None]:
        if error := answers.pop(0):
            raise error
        return "2000 messages", None

    target: Any = SimpleNamespace(huge=1, proxies=[])
    nemesis = Nemesis(target, Stage(tmp_path, ASSIGNMENT, ""), None, "jobs")  # type: ignore[arg-type]
    nemesis._faults.purge_many = purge_many  # type: ignore[method-assign]
    nemesis._lanes.take(step("purge_many"))
    nemesis.heal()
    assert [(each.fault, each.what) for each in nemesis.deeds] == [("purge_many", "2000 messages")]
