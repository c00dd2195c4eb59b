"""What the campaign says of a pool: messages that kill its processes, and processes whose parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from shardq.client import Client
from tests.faults.written_history import Script
from tests.processes import eventually
from tools.faults import faults, stage
from tools.faults.assignment import Assignment
from tools.faults.history import Delivery, Phase
from tools.faults.pooled import is_poison, judge_pooled
from tools.faults.schedule import Step
from tools.faults.stage import Actor, has_ended

POISON, GOOD = "d1-5", "d1-6"
STEP = Step(0.0, "", 0.5, 1.0, 0.5)


class Pooled(Script):
    """Messages that are offered, held and given up, one step after the other."""

    def offer(self, *bodies: str, phase: Phase = Phase.OK) -> Self:
        named = {"bodies": bodies}
        self.operation("offer", "d1.1", len(self.events), phase=phase, begins=named, ends=named)
        return self

    def hold(self, count: int, *bodies: str) -> Self:
        held = tuple(Delivery(body, body, 5, 0, count) for body in bodies)
        self.event("hold", "x1.1", len(self.events), Phase.INVOKE, number=1, deliveries=held)
        return self

    def work(self, count: int, *bodies: str) -> Self:
        self.hold(count, *bodies)
        self.event("worked", "x1.1", len(self.events), Phase.OK, number=1, bodies=bodies)
        return self

    def bury(self, *bodies: str, count: int = 3) -> Self:
        given = tuple(Delivery(body, body, 5, 0, count) for body in bodies)
        self.operation("write-off", "write-off.1", len(self.events), ends={"deliveries": given})
        return self


def script() -> Pooled:
    return Pooled()


def poisoned() -> Pooled:
    """Two deliveries of a poisoned message together with another one."""
    return script().offer(POISON, GOOD).hold(1, POISON, GOOD).hold(2, GOOD, POISON)


CASES: dict[str, tuple[Pooled, str]] = {
    "poison becomes a dead letter and what was held beside it is worked": (
        poisoned().hold(3, POISON).work(3, GOOD).bury(POISON),
        "",
    ),
    "a message may be given up because its lease was over at its last delivery": (
        poisoned().hold(3, POISON).hold(3, GOOD).bury(POISON, GOOD),
        "",
    ),
    "a message that was given up because another one killed the process": (
        poisoned().hold(3, POISON, GOOD).bury(POISON, GOOD),
        "dead because of another message 1",
    ),
    "a message that was given up before its last delivery": (
        poisoned().hold(3, POISON).bury(POISON).bury(GOOD, count=2),
        "given up too early 1",
    ),
    "poison that is gone": (poisoned().work(3, GOOD), "poison that is no dead letter 1"),
    "poison that was worked": (
        poisoned().work(3, POISON).work(3, GOOD).bury(POISON),
        "poison that was worked 1",
    ),
    "a message that was held and never worked is lost": (
        poisoned().hold(3, POISON).bury(POISON),
        "offered and lost 1",
    ),
    "a message whose send is unknown may be gone": (
        script().offer(POISON, GOOD, phase=Phase.UNKNOWN),
        "",
    ),
}


@pytest.mark.parametrize(("history", "broken"), CASES.values(), ids=CASES)
def test_only_poison_kills_and_everything_else_is_worked(history: Pooled, broken: str) -> None:
    found = [f"{each.promise} {each.count}" for each in judge_pooled(history.in_order())]
    assert (", ".join(found), is_poison(POISON), is_poison(GOOD)) == (broken, True, False)


LASTING = "exec sleep 60"
FOLLOWING = "while kill -0 $$; do sleep 0.05; done"  # ends with its parent


class Parent(Actor):
    """A client with one process of its own."""

    child = LASTING

    def __init__(self, assignment: Assignment, folder: Path) -> None:
        self.assignment = assignment
        self.process = subprocess.Popen(["sh", "-c", f"({self.child}) & wait"], cwd=folder)
        assert eventually(lambda: bool(self.children))


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[stage.Stage]:
    monkeypatch.setattr(stage, "Actor", Parent)
    told = Assignment(role="", name="", seed=0, url="", queue="q", log="", dial="")
    clients = stage.Stage(tmp_path, told, "seed")
    yield clients
    for actor in clients.actors:
        for pid in (*actor.children, actor.process.pid):
            os.kill(pid, signal.SIGKILL)
        actor.process.wait()


@pytest.mark.parametrize(("child", "patience", "problems"), [(FOLLOWING, 60.0, 0), (LASTING, 0.2, 1)])
def test_a_process_that_outlives_the_parent_of_its_pool_is_a_problem(
    pools: stage.Stage, monkeypatch: pytest.MonkeyPatch, child: str, patience: float, problems: int
) -> None:
    monkeypatch.setattr(faults, "ORPHAN_SECONDS", patience)
    monkeypatch.setattr(Parent, "child", child)
    victim = pools.start("pool", "x1")
    orphans = victim.children
    target: Any = SimpleNamespace(goes_by_client_clock=True, huge=0)
    nemesis = faults.Faults(target, pools, cast("Client", None), "q", lambda _: None)
    assert nemesis.kill_pool(STEP) == ("x1.1", None)
    assert len(nemesis.problems) == problems
    assert [actor.name for actor in pools.actors] == ["x1.2"]
    for pid in orphans:
        if not has_ended(pid):
            os.kill(pid, signal.SIGKILL)


def test_the_processes_of_a_client_stand_still_and_go_on_with_it(
    pools: stage.Stage,
) -> None:
    victim = pools.start("pool", "x1")
    (child,) = victim.children
    victim.send(signal.SIGSTOP)
    assert eventually(lambda: _state(child) == "T")
    victim.send(signal.SIGCONT)
    assert eventually(lambda: _state(child) == "S")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
