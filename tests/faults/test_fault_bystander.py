"""What the nemesis does to a queue beside the one under test, and sees of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardq.client import Client
from shardq.clock import SystemClock
from shardq.sharding.shard import Shard
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed
from shardq.storage.store import Store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, WrappedStore
from tools.faults import bystanders
from tools.faults.bystanders import Bystanders
from tools.faults.dial import Dial, Loss
from tools.faults.partly import go_on_without_a_shard
from tools.faults.schedule import Step

STEP = Step(0.0, "", 0.5, 1.0, 0.5)


class PurgesNothing(WrappedStore):
    """Says that it purged."""

    def purge(self, shard: Shard) -> int:
        counts = self.inner.count(shard)
        return counts.ready + counts.delayed


class KeepsWhatIsDropped(WrappedStore):
    """Says that it dropped the queue, and that it created it."""

    def drop_queue(self, name: str, seen: object = None) -> bool:
        return bool(name)

    def create_queue(self, record: object) -> bool:
        return bool(record)


def faults_on(store: WrappedStore, monkeypatch: pytest.MonkeyPatch) -> Bystanders:
    monkeypatch.setattr(bystanders, "MANY", 100)
    store.inner.create_schema()
    Client(store.inner).create_queue("queue.bystander", shards=2, time_shards=2, max_deliveries=None)
    return Bystanders(Client(store, retry_seconds=0), "queue", huge=300)


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[WrappedStore]:
    store = WrappedStore(open_store(f"sqlite:///{tmp_path}/queue.db", SystemClock()))
    yield store
    store.close()


def test_a_queue_that_is_purged_and_created_again_is_empty(
    sound: WrappedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    nemesis = faults_on(sound, monkeypatch)
    for _ in range(2):
        assert nemesis.recreate_bystander(STEP) == ("50 messages", None)
        assert nemesis.purge_many(STEP) == ("100 messages", None)
        assert nemesis.problems == []


def test_a_purge_or_a_new_queue_that_leaves_messages_is_a_problem(
    sound: WrappedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    nemesis = faults_on(KeepsWhatIsDropped(PurgesNothing(sound.inner)), monkeypatch)
    nemesis.recreate_bystander(STEP)
    assert nemesis.problems == ["queue queue.bystander held 100 messages, not 50"]


def test_a_huge_purge_leaves_nothing_and_the_queue_goes_on(
    sound: WrappedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    nemesis = faults_on(sound, monkeypatch)
    monkeypatch.setattr(bystanders, "PIECE", 100)
    nemesis.purge_huge(STEP)
    assert nemesis._purging is not None
    nemesis._purging.join()
    assert nemesis.problems == []
    ((_, what),) = nemesis.told
    assert what.startswith("300 messages")


def test_a_huge_purge_during_other_faults_is_no_problem(
    sound: WrappedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = FaultPlan(
        tuple(Fault(each, 1, FaultKind.UNAVAILABLE) for each in ("create_queue", "purge", "count"))
    )
    nemesis = faults_on(FaultyStore(sound.inner, full), monkeypatch)
    nemesis.purge_huge(STEP)
    assert nemesis._purging is not None
    nemesis._purging.join()
    assert nemesis.problems == []


def test_a_huge_purge_that_purges_nothing_is_a_problem(
    sound: WrappedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    nemesis = faults_on(PurgesNothing(sound.inner), monkeypatch)
    nemesis.over.set()  # nothing is sent before the purge
    Client(sound.inner).create_queue("queue.huge", shards=1, time_shards=1)
    nemesis._send("queue.huge", 60)
    nemesis.purge_huge(STEP)
    nemesis.finish()
    assert nemesis.problems == ["queue queue.huge held 60 messages, not 0"]


@pytest.mark.parametrize("loss", Loss)
def test_the_other_shards_go_on_while_one_is_away(sound: WrappedStore, tmp_path: Path, loss: Loss) -> None:
    sound.create_schema()
    dial = Dial(tmp_path / "dial")
    assert go_on_without_a_shard(sound, dial, "queue.partly", loss, patience=60) == []
    assert dial.away is None


class ComesToAStandstill(WrappedStore):
    """Gives nothing of any shard while one of them is away."""

    def __init__(self, inner: Store, dial: Dial) -> None:
        super().__init__(inner)
        self._dial = dial

    def claim(self, request: Claim) -> Claimed:
        return Claimed((), 0) if self._dial.away else super().claim(request)


def test_others_that_stand_still_while_one_is_away_are_a_problem(sound: WrappedStore, tmp_path: Path) -> None:
    sound.create_schema()
    dial = Dial(tmp_path / "dial")
    store = ComesToAStandstill(sound, dial)
    problems = go_on_without_a_shard(store, dial, "queue.partly", Loss.REFUSED, patience=1)
    assert "stood still" in problems[0]


def test_monotonic_clocks_stand_still_while_a_machine_sleeps_and_the_time_of_day_goes_on(
    tmp_path: Path,
) -> None:
    dial = Dial(tmp_path / "dial")
    dial.asleep = 90_000_000_000
    text = f"""
import time
from pathlib import Path
before = time.monotonic_ns(), time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
from tools.faults.dial import Dial, distort_time, true_monotonic_ns
distort_time(Dial(Path({str(tmp_path / "dial")!r})))
after = time.monotonic_ns(), time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
assert after[0] < before[0] and after[1] >= before[1] and after[2] >= before[2]
assert true_monotonic_ns() >= before[0]
assert time.monotonic() < before[0] / 1e9
"""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", text], cwd=root, check=True)
