"""What the nemesis sees beside the histories: queues that are purged or moved from, and shards that are away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from shardq.base.clock import SystemClock
from shardq.base.shard import Shard
from shardq.client import Client
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed
from shardq.storage.store import Store
from shardq.testing import WrappedStore
from tools.faults import bystanders, stage
from tools.faults.assignment import Assignment
from tools.faults.bystanders import Bystanders
from tools.faults.dial import Dial, Loss
from tools.faults.faults import Faults
from tools.faults.history import Event, Log, Phase
from tools.faults.partly import go_on_without_a_shard
from tools.faults.schedule import Step
from tools.faults.side import create_side, finish_moves
from tools.faults.stage import Actor

STEP = Step(0.0, "", 0.5, 1.0, 0.5)


class KeepsMessages(WrappedStore):
    """Says that it purged, that it dropped the queue, and that it created it."""

    def purge(self, shard: Shard) -> int:
        counts = self.inner.count(shard)
        return counts.ready + counts.delayed

    def drop_queue(self, name: str, seen: object = None) -> bool:
        return bool(name)

    def create_queue(self, record: object) -> bool:
        return False


class StandsStill(WrappedStore):
    """Gives nothing of any shard while one of them is away."""

    def __init__(self, inner: Store, dial: Dial) -> None:
        super().__init__(inner)
        self._dial = dial

    def claim(self, request: Claim) -> Claimed:
        return Claimed((), 0) if self._dial.away else super().claim(request)


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[WrappedStore]:
    store = WrappedStore(open_store(f"sqlite:///{tmp_path}/queue.db", SystemClock()))
    store.create_schema()
    yield store
    store.close()


@pytest.mark.parametrize(
    ("wrap", "problems"),
    [
        (WrappedStore, []),
        (
            KeepsMessages,
            [
                "queue queue.bystander held 100 messages, not 50",
                "queue queue.bystander held 200 messages, not 100",
                "queue queue.bystander held 200 messages, not 0",
                "queue queue.huge held 300 messages, not 0",
            ],
        ),
    ],
)
def test_a_purge_or_a_new_queue_that_leaves_messages_is_a_problem(
    sound: WrappedStore,
    monkeypatch: pytest.MonkeyPatch,
    wrap: Callable[[Store], WrappedStore],
    problems: list[str],
) -> None:
    for limit in ("MANY", "PIECE"):
        monkeypatch.setattr(bystanders, limit, 100)
    for name in ("queue.bystander", "queue.huge"):
        Client(sound.inner).create_queue(name, shards=1, time_shards=1, max_deliveries=None)
    nemesis = Bystanders(Client(wrap(sound.inner), retry_seconds=0), "queue", huge=300)
    for deed in (nemesis.recreate_bystander, nemesis.purge_many, nemesis.purge_huge):
        deed(STEP)
    nemesis.finish()
    assert nemesis.problems == problems


@pytest.mark.parametrize("loss", Loss)
def test_the_other_shards_go_on_while_one_is_away(sound: WrappedStore, tmp_path: Path, loss: Loss) -> None:
    dial = Dial(tmp_path / "dial")
    assert go_on_without_a_shard(sound, dial, "queue.partly", loss, patience=60) == []
    assert dial.away is None


def test_others_that_stand_still_while_one_is_away_are_a_problem(sound: WrappedStore, tmp_path: Path) -> None:
    dial = Dial(tmp_path / "dial")
    store = StandsStill(sound, dial)
    assert "stood still" in go_on_without_a_shard(store, dial, "queue.partly", Loss.REFUSED, patience=1)[0]


def test_a_message_between_two_counts_is_moved() -> None:
    """It is not seen at first: it is redriven to the side queue, that was counted before."""
    side = {"q.side": [0, 1, 0, 0, 0], "q.side.dead": [0] * 99}

    def counts(name: str) -> Any:
        return SimpleNamespace(ready=side[name].pop(0), delayed=0, in_flight=0)

    stage: Any = SimpleNamespace(end=lambda role: None, start=lambda role, place, queue: None)
    client: Any = SimpleNamespace(queue=lambda name: SimpleNamespace(counts=lambda: counts(name)))
    assert finish_moves(stage, client, "q", 5) == []


def test_messages_that_were_not_moved_in_time_are_a_problem_and_not_lost(url: str) -> None:
    stage: Any = SimpleNamespace(end=lambda role: None)
    with Client(open_store(url, SystemClock())) as client:
        create_side(client, "q", 30)
        client.queue("q.side").producer().send_many([b"%d" % number for number in range(300)])
        client.queue("q.side").consumer().receive(20).dead_letter("given up")
        (problem,) = finish_moves(stage, client, "q", 0)
        assert "not moved in time" in problem
        assert client.queue("q.moved").counts().ready == 300


CAMPAIGN = """
import sys, time
from pathlib import Path
import msgspec
from tools.faults.assignment import Assignment
from tools.faults.stage import Actor
client = Actor(msgspec.json.decode(sys.argv[1], type=Assignment), Path(sys.argv[2]))
while not client.has_begun:
    time.sleep(0.01)
print(client.process.pid, flush=True)
time.sleep(600)
"""
"""Starts one client, and says so when it is at work."""


def test_a_client_ends_with_the_campaign_that_was_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with Client(open_store(url, SystemClock())) as client:
        client.create_queue("q")
    log, dial = tmp_path / "w1.1.jsonl", str(tmp_path / "dial")
    log.touch()
    told = Assignment(role="work", name="w1.1", seed=1, url=url, queue="q", log=str(log), dial=dial)
    command = [sys.executable, "-c", CAMPAIGN, msgspec.json.encode(told).decode(), str(tmp_path)]
    with subprocess.Popen(command, cwd=stage.ROOT, stdout=subprocess.PIPE, text=True) as campaign:
        assert campaign.stdout is not None
        pid = int(campaign.stdout.readline())
        assert not stage.has_ended(pid)
        campaign.kill()
    until = time.monotonic() + 60
    while not stage.has_ended(pid) and time.monotonic() < until:
        time.sleep(0.01)
    if not stage.has_ended(pid):
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the client goes on without its campaign")


class Asleep(Actor):
    """A client that does nothing."""

    def __init__(self, assignment: Assignment, folder: Path) -> None:
        self.assignment, self.process = assignment, subprocess.Popen(["sleep", "60"], cwd=folder)


def test_a_machine_that_is_suspended_sleeps_no_longer_than_it_is_however_many_clients_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "Actor", Asleep)
    template = Assignment(
        role="", name="", seed=0, url="", queue="q", log="", dial="", store_goes_by_clock=True
    )
    clients = stage.Stage(tmp_path, template, "seed")
    target: Any = SimpleNamespace(goes_by_client_clock=True, huge=0)
    faults = Faults(target, clients, client=cast("Client", None), queue="q", start_again=lambda _: None)
    actors = [clients.start("work", place) for place in ("w1", "w2", "w3")]
    began = time.monotonic_ns()
    try:
        _, go_on = faults.suspend_machine(STEP)
        while not all(actor.is_stopped for actor in actors):
            time.sleep(0.01)
        go_on()
        assert 0 < clients.dials["w1"].asleep <= time.monotonic_ns() - began
    finally:
        for actor in actors:
            actor.process.kill()
            actor.process.wait()


@pytest.mark.parametrize(
    ("strength", "seconds"),
    [(0.0, -10_800.0), (0.2, -240.0), (0.5, 0.0), (0.8, 240.0), (0.99, 10_800.0)],
)
def test_the_clock_of_one_client_is_wrong_by_minutes_or_hours_and_is_put_right(
    tmp_path: Path, strength: float, seconds: float
) -> None:
    dials = {"w1": Dial(tmp_path / "w1"), "w2": Dial(tmp_path / "w2")}
    clients: Any = SimpleNamespace(dials=dials, of_role=lambda *_: [SimpleNamespace(name="w1.1")])
    target: Any = SimpleNamespace(goes_by_client_clock=False, huge=0)
    faults = Faults(target, clients, client=cast("Client", None), queue="q", start_again=lambda _: None)
    _, put_right = faults.skew_clock(msgspec.structs.replace(STEP, strength=strength))
    assert [round(dials[each].ahead / 1e9) for each in ("w1", "w2")] == [seconds, 0]
    assert put_right is not None
    put_right()
    assert dials["w1"].ahead == 0


def test_the_next_client_of_a_place_uses_no_number_that_an_interrupted_one_has_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send that was interrupted before it was written down has left numbers out."""
    monkeypatch.setattr(stage, "Actor", Asleep)
    template = Assignment(role="", name="", seed=0, url="", queue="q", log="", dial="")
    clients = stage.Stage(tmp_path, template, "seed")
    first = clients.start("produce", "p1", first=10, messages=100)
    log = Log(Path(first.assignment.log))
    for number, bodies in enumerate((("p1-10", "p1-11"), ("p1-19",)), start=1):
        log.write(
            Event(at=number, actor="p1.1", number=number, verb="send", phase=Phase.INVOKE, bodies=bodies)
        )
    clients.replace(first, signal.SIGKILL)
    (told,) = [actor.assignment for actor in clients.actors]
    clients.kill("produce")
    assert (told.name, told.first, told.messages) == ("p1.2", 20, 90)
