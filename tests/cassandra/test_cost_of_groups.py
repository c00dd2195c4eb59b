"""What a claim of groups writes and leaves depends on how many claims there were, not on how many groups these had."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.cassandra.groups import changing
from shardq.storage.cassandra.groups.rows import keys_of
from shardq.storage.cassandra.rows import DUE_INDEX, LEASE
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Acknowledge, Append, Claim, Extend, Fenced, Release, Span
from shardq.testing import BundleFactory
from tests.cassandra.traces import tombstones_of

pytestmark = pytest.mark.server

MINUTE = 60_000_000
LAPSED = 1  # a lease that is over when the claim returns
CLAIMS, GROUPS = 6, 100  # in each claim
Opens = Callable[[], CassandraStore]


@pytest.fixture
def grouped(shard: Shard) -> Shard:
    return Shard(shard.queue, GROUP_TIME_SHARD, 3)


def fill(store: CassandraStore, shard: Shard, groups: int) -> None:
    """Send a message to each of so many groups that were not there before."""
    make, name = BundleFactory(store.now), os.urandom(4).hex()
    store.append(Append(shard, tuple(make(group=f"{name}-{number}") for number in range(groups))))


def take(store: CassandraStore, shard: Shard, limit: int, lease: int = MINUTE) -> tuple[Span, ...]:
    token = os.urandom(16)
    slices = store.claim(Claim(shard, token, limit, lease)).slices
    return tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)


def use_up(store: CassandraStore, shard: Shard, lease: int) -> None:
    """Claim and ack many groups."""
    for _ in range(CLAIMS):
        fill(store, shard, GROUPS)
        spans = take(store, shard, GROUPS, lease)
        assert len(spans) == GROUPS
        assert store.acknowledge(Acknowledge(shard, spans)) == Fenced()


@pytest.mark.parametrize("lease", [LAPSED, MINUTE // 2], ids=["leases that are over", "leases that end soon"])
def test_a_look_crosses_a_tombstone_of_each_claim_not_of_each_group(
    store: CassandraStore, open_store: Opens, grouped: Shard, lease: int
) -> None:
    # Given many groups that were claimed and acked a moment ago
    use_up(store, grouped, lease)
    fill(store, grouped, 3)
    # Then a client that begins at the low watermarks crosses little in the index of leases
    other = open_store()
    looked = tombstones_of(other, lambda: other.probe([grouped]), "kind = 5 AND priority = 0")
    claimed = tombstones_of(other, lambda: take(other, grouped, 1), "kind = 5 AND priority = 0")
    assert looked <= CLAIMS
    assert claimed <= CLAIMS


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many statements name a row of each kind, in the conditional batches of shards."""
    kinds: Counter[int] = Counter()
    apply = Session.apply

    def noted(session: Session, statements: Sequence[Statement]) -> bool:
        for statement, values in statements:
            if " entry " in statement:
                name_at = next(number for number, each in enumerate(values) if isinstance(each, str))
                kinds[values[name_at + 1]] += 1  # after the shard
        return apply(session, statements)

    monkeypatch.setattr(Session, "apply", noted)
    return kinds


def test_a_claim_of_groups_has_one_lease_row_with_one_due_row_whatever_becomes_of_its_groups(
    store: CassandraStore, grouped: Shard, written: Counter[int]
) -> None:
    def index_rows(do: Callable[[], object]) -> tuple[int, int]:
        written.clear()
        do()
        return written[LEASE], written[DUE_INDEX]

    fill(store, grouped, 40)
    held: list[Span] = []
    assert index_rows(lambda: held.extend(take(store, grouped, 40))) == (1, 1)
    # What is acked or given back leaves the others in it
    assert index_rows(lambda: store.acknowledge(Acknowledge(grouped, tuple(held[:10])))) == (1, 1)
    assert index_rows(lambda: store.release(Release(grouped, tuple(held[10:20]), delay=MINUTE))) == (1, 11)
    # Those whose lease is extended get one of their own, unless they are all of them
    assert index_rows(lambda: store.extend(Extend(grouped, tuple(held[20:30]), 2 * MINUTE))) == (2, 2)
    assert index_rows(lambda: store.extend(Extend(grouped, tuple(held[30:]), 3 * MINUTE))) == (1, 2)
    # Both go with their last group
    assert index_rows(lambda: store.acknowledge(Acknowledge(grouped, tuple(held[20:])))) == (2, 2)
    counts = store.count(grouped)
    assert (counts.delayed, counts.in_flight, counts.ready) == (10, 0, 0)


def test_a_group_can_be_settled_by_who_has_only_its_receipt_and_the_others_stay_held(
    store: CassandraStore, open_store: Opens, grouped: Shard
) -> None:
    fill(store, grouped, 6)
    spans = take(store, grouped, 6)
    # Given clients that did not claim these, and each settle some of them
    for span in spans[:3]:
        assert open_store().acknowledge(Acknowledge(grouped, (span,))) == Fenced()
    assert open_store().extend(Extend(grouped, spans[3:4], 2 * MINUTE)) == Fenced()
    assert open_store().release(Release(grouped, spans[4:5])) == Fenced()
    # Then nothing else has changed hands
    counts = store.count(grouped)
    assert (counts.in_flight, counts.ready) == (2, 1)
    assert store.acknowledge(Acknowledge(grouped, spans)) == Fenced(lost=spans[4:5], gone=spans[:3])


def test_leases_that_are_over_are_taken_group_by_group(
    store: CassandraStore, open_store: Opens, grouped: Shard
) -> None:
    # Given a claim of many groups whose lease is over
    fill(store, grouped, 40)
    late = take(store, grouped, 40, LAPSED)
    # Then others take some of its groups at a time, and it loses just these
    other = open_store()
    taken = [take(other, grouped, limit) for limit in (1, 5, 10)]
    assert [len(each) for each in taken] == [1, 5, 10]
    lost = {span.bundle_id for each in taken for span in each}
    fenced = store.acknowledge(Acknowledge(grouped, late))
    assert {span.bundle_id for span in fenced.lost} == lost
    assert fenced.gone == ()
    assert store.count(grouped).in_flight == 16


@pytest.mark.parametrize("limit", [1, 10, 100])
def test_a_claim_of_short_groups_asks_as_often_as_one_of_other_messages(
    store: CassandraStore, shard: Shard, grouped: Shard, requests: Counter[str], limit: int
) -> None:
    def asked(place: Shard) -> tuple[int, int]:
        fill(store, place, 2 * limit) if place.is_grouped else _send(store, place, 2 * limit)
        assert len(take(store, place, limit)) == limit  # the first one begins at the low watermarks
        requests.clear()
        assert len(take(store, place, limit)) == limit
        return requests["read"], requests["batch"]

    assert asked(grouped) <= asked(shard)


def _send(store: CassandraStore, shard: Shard, count: int) -> None:
    make = BundleFactory(store.now)
    for start in range(0, count, 50):
        store.append(Append(shard, tuple(make() for _ in range(min(50, count - start)))))


@pytest.mark.parametrize("window", [1, 64])
@pytest.mark.parametrize("limit", [1, 10])
def test_what_a_ready_row_tells_wrongly_of_its_group_costs_an_attempt_and_hides_nothing(
    store: CassandraStore,
    open_store: Opens,
    grouped: Shard,
    monkeypatch: pytest.MonkeyPatch,
    window: int,
    limit: int,
) -> None:
    monkeypatch.setattr(changing, "WINDOW", window)
    make = BundleFactory(store.now)
    sent = [make(group=name) for name in "abc" for _ in range(3)]
    store.append(Append(grouped, tuple(sent)))
    # Given a client of before, which leaves a ready row as it is while the first message of its group stays
    with monkeypatch.context() as before:
        before.setattr(changing, "rows_of", lambda group: dict.fromkeys(keys_of(group), b""))
        more = [make(group=name) for name in "abc"]
        store.append(Append(grouped, tuple(more)))
    # Then every claim gets what it asks for, in order
    other, came = open_store(), []
    while spans := take(other, grouped, limit):
        came += [span.bundle_id for span in spans]
        assert other.acknowledge(Acknowledge(grouped, spans)) == Fenced()
    for number in range(3):
        of_group = [each.id for each in (*sent[3 * number : 3 * number + 3], more[number])]
        assert [each for each in came if each in of_group] == of_group
