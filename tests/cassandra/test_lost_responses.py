"""A request that fails, or whose answer is lost, at every statement of every operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

import shardq
from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.cassandra import settling
from shardq.storage.cassandra.groups import changing as group_changing
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Claim, Fenced
from tests.steps import EXPECTED, MINUTE, STEPS, claim, clear, counted, persist, prepared

pytestmark = [pytest.mark.server, pytest.mark.long]


class FailingSession(Session):
    """Fails at one of its writes: before it is carried out, or after. Reading that back can be impossible too."""

    fail_at = -1
    carried_out = True
    blind = False
    writes = 0
    unsettled = False

    def read_serial(self, query: str, values: Sequence[Any]) -> list[Any]:
        if self.blind and self.unsettled:
            self.unsettled = False
            raise StoreUnavailable("the read was lost on purpose")
        return super().read_serial(query, values)

    def write(self, statements: Sequence[Statement]) -> None:
        self._fail(lambda: super(FailingSession, self).write(statements))

    def apply(self, statements: Sequence[Statement]) -> bool:
        return bool(self._fail(lambda: super(FailingSession, self).apply(statements)))

    def _fail(self, do: Callable[[], Any]) -> Any:
        self.writes += 1
        if self.writes - 1 != self.fail_at:
            return do()
        if self.carried_out:
            do()
        self.unsettled = True
        raise OutcomeUnknown("the answer was lost on purpose")


@pytest.fixture(autouse=True)
def narrow_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short groups are longer than their windows, so that something is behind these; two spans are settled in parts."""
    monkeypatch.setattr(group_changing, "WINDOW", 1)
    monkeypatch.setattr(settling, "_MOST_SPANS", 1)


@pytest.fixture
def failing(open_with: Callable[..., tuple[CassandraStore, Any]]) -> CassandraStore:
    return open_with(FailingSession)[0]


LOST = pytest.mark.parametrize("carried_out", [False, True], ids=["request lost", "response lost"])


@LOST
@pytest.mark.parametrize("blind", [False, True], ids=["read back", "not read back"])
@pytest.mark.parametrize("step", list(STEPS))
@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "of a group"])
def test_a_repeated_step_neither_loses_nor_doubles(
    failing: CassandraStore,
    store: CassandraStore,
    shard: Shard,
    step: str,
    carried_out: bool,
    blind: bool,
    grouped: bool,
) -> None:
    shard = Shard(shard.queue, GROUP_TIME_SHARD, 0) if grouped else shard
    session = failing.session
    assert isinstance(session, FailingSession)
    session.carried_out, session.blind = carried_out, blind
    for fail_at in range(20):
        given = prepared(step, store, shard)
        # When a step fails at one of its writes, and is repeated
        session.writes, session.fail_at = 0, fail_at
        persist(partial(STEPS[step], failing, shard, given))
        failed = session.writes > fail_at
        session.fail_at = -1
        # Then the shard is as after one call
        assert counted(store, shard) == EXPECTED[step]
        if step == "claim":
            again = claim(failing, Claim(shard, given.token, 4, MINUTE)).slices
            assert [(each.first, each.count, each.deliveries) for each in again] == [(0, 3, 1), (0, 1, 1)]
        clear(store, shard)
        if not failed:
            return
    pytest.fail("the step has no end")


@LOST
@pytest.mark.parametrize("step", ["claim", "acknowledge", "keep", "extend", "release", "forward"])
@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "of a group"])
def test_what_became_of_a_conditional_write_is_read_back(
    failing: CassandraStore, store: CassandraStore, shard: Shard, step: str, carried_out: bool, grouped: bool
) -> None:
    shard = Shard(shard.queue, GROUP_TIME_SHARD, 0) if grouped else shard
    session = failing.session
    assert isinstance(session, FailingSession)
    session.carried_out = carried_out
    # Given a step whose conditional write gets no answer; before that of a claim is one that renews the turn
    given = prepared(step, store, shard)
    session.writes, session.fail_at = 0, int(step == "claim" and not grouped)
    # Then the caller is told what happened all the same, and nothing is lost to it
    told: Any = STEPS[step](failing, shard, given)
    assert session.writes > session.fail_at
    if step == "claim":
        assert [(each.first, each.count, each.deliveries) for each in told.slices] == [(0, 3, 1), (0, 1, 1)]
    else:
        assert told == Fenced()


@LOST
@pytest.mark.parametrize("blind", [False, True], ids=["read back", "not read back"])
@pytest.mark.parametrize("positions", [[0], [1], [0, 1, 2, 3]], ids=["the first", "a middle one", "the last"])
def test_a_dead_letter_is_in_one_queue_whatever_is_lost_on_its_way(
    failing: CassandraStore, shard: Shard, carried_out: bool, blind: bool, positions: list[int]
) -> None:
    session = failing.session
    assert isinstance(session, FailingSession)
    session.carried_out, session.blind = carried_out, blind
    client = shardq.Client(failing, retry_seconds=10.0)
    for fail_at in range(20):
        # Given a queue of which four messages were held, and some are dead letters by now
        queue = client.create_queue(f"{shard.queue}.{fail_at}", shards=1, time_shards=1)
        with queue.producer() as producer:
            producer.send_many([b"0", b"1", b"2", b"3", b"4", b"5"])
        batch = queue.consumer().receive(4)
        for position in positions[:-1]:
            batch[position].dead_letter("cannot be parsed")
        # When one more is dead-lettered, and one of the writes fails
        session.writes, session.fail_at = 0, fail_at
        batch[positions[-1]].dead_letter("cannot be parsed")
        failed = session.writes > fail_at
        session.fail_at = -1
        # Then all of them are among the dead letters once, and nowhere else
        dead = client.queue(f"{queue.name}.dead")
        assert sorted(each.body for each in dead.peek(10)) == sorted(batch[each].body for each in positions)
        assert len(queue.peek(10)) == 6 - len(positions)
        client.delete_queue(queue.name)
        client.delete_queue(dead.name)
        if not failed:
            return
    pytest.fail("the step has no end")
