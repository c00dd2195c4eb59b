"""What the nemesis sees beside the histories: queues that are purged or moved from, and shards that are away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shardq.client import Client
from shardq.clock import SystemClock
from shardq.sharding.shard import Shard
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed
from shardq.storage.store import Store
from shardq.testing import WrappedStore
from tools.faults import bystanders
from tools.faults.bystanders import Bystanders
from tools.faults.dial import Dial, Loss
from tools.faults.partly import go_on_without_a_shard
from tools.faults.schedule import Step
from tools.faults.side import finish_moves

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


@pytest.mark.parametrize(("counted", "problem"), [([0, 1, 0, 0, 0], ""), ([1] * 99, "not moved in time")])
def test_a_message_that_is_never_moved_is_a_problem_and_one_between_two_counts_is_moved(
    counted: list[int], problem: str
) -> None:
    """The second one is not seen at first: it is redriven to the side queue, that was counted before."""
    side = {"q.side": list(counted), "q.side.dead": [0] * 99}

    def counts(name: str) -> Any:
        return SimpleNamespace(ready=side[name].pop(0), delayed=0, in_flight=0)

    stage: Any = SimpleNamespace(end=lambda role: None, start=lambda role, place, queue: None)
    client: Any = SimpleNamespace(queue=lambda name: SimpleNamespace(counts=lambda: counts(name)))
    found = finish_moves(stage, client, "q", 0.3 if problem else 5)
    assert bool(found) is bool(problem) and problem in "".join(found)
