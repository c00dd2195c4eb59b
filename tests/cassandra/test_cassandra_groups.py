"""What is particular to groups on Cassandra: what they cost, long ones, and what a hint or a late write may hide."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.errors import QueueNotFound, SchemaMismatch
from shardq.storage.cassandra.groups.rows import WINDOW
from shardq.storage.cassandra.rows import Control
from shardq.storage.cassandra.scanning import FIRST, FOREVER
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.read_cursors import PRIORITIES
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Extend,
    Fenced,
    Peek,
    Release,
    ShardCounts,
    Span,
)
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000
Opens = Callable[[], CassandraStore]
OpensWith = Callable[..., tuple[CassandraStore, Any]]


@pytest.fixture
def grouped(shard: Shard) -> Shard:
    return Shard(shard.queue, GROUP_TIME_SHARD, 3)


def fill(store: CassandraStore, shard: Shard, groups: Sequence[str], delay: float = 0) -> list[Bundle]:
    """Send a message to each group, in one append."""
    make = BundleFactory(store.now)
    bundles = [make(group=group, delay=delay) for group in groups]
    store.append(Append(shard, tuple(bundles)))
    return bundles


def take(store: CassandraStore, shard: Shard, limit: int) -> tuple[list[bytes], tuple[Span, ...]]:
    token = os.urandom(16)
    slices = store.claim(Claim(shard, token, limit, MINUTE)).slices
    ids = [each.bundle.id for each in slices]
    return ids, tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)


@pytest.mark.parametrize("limit", [1, 10, 50])
def test_a_claim_of_few_reads_few_of_the_groups(
    store: CassandraStore, grouped: Shard, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    # Given more groups than a claim looks at
    bundles = [
        bundle for part in range(3) for bundle in fill(store, grouped, [f"{part}-{n}" for n in range(80)])
    ]
    pages: list[int] = []
    groups: list[int] = []
    start_read = Session.start_read

    def noted(session: Session, query: str, values: Any, page: int | None = None, **options: Any) -> Any:
        if "kind = 2" in query:
            pages.append(page or 0)
        if "kind = 7" in query:
            groups.append(len(values[-1]))
        return start_read(session, query, values, page=page, **options)

    monkeypatch.setattr(Session, "start_read", noted)
    # When they are claimed a few at a time
    taken: list[bytes] = []
    while len(taken) < 4 * limit:
        taken += take(store, grouped, limit)[0]
    # Then no page has many more of them than are taken, and the first ones came first
    assert set(pages) == {max(32, limit * 5 // 4 + 1)}
    assert sum(groups) <= 4 * (limit + 4)
    assert taken == [bundle.id for bundle in bundles[: 4 * limit]]


def test_requests_of_each_operation_on_groups(
    store: CassandraStore, grouped: Shard, requests: Counter[str]
) -> None:
    def asked(do: Callable[[], object]) -> tuple[int, int]:
        requests.clear()
        do()
        return requests["read"], requests["batch"]

    fill(store, grouped, "abcabc")
    take(store, Shard(grouped.queue, GROUP_TIME_SHARD, 9), 1)
    make = BundleFactory(store.now)
    # The groups are read, then changed
    store.append(Append(grouped, (make(group="d"),)))
    assert asked(lambda: store.append(Append(grouped, (make(group="d"),)))) == (1, 1)
    # A look at the shard, which may have to start at the low watermarks; the groups; beside the batch the bodies
    held: list[tuple[Span, ...]] = []
    reads, batches = asked(lambda: held.append(take(store, grouped, 3)[1]))
    assert reads <= 6
    assert batches == 1
    # What this client holds is not read
    (spans,) = held
    assert asked(lambda: store.extend(Extend(grouped, spans, MINUTE))) == (0, 1)
    assert asked(lambda: store.acknowledge(Acknowledge(grouped, spans[:2]))) == (0, 1)
    assert asked(lambda: store.release(Release(grouped, spans[2:]))) == (0, 1)


def test_a_long_group_is_delivered_in_order_whatever_is_taken_at_once(
    store: CassandraStore, open_store: Opens, grouped: Shard
) -> None:
    # Given a group that is much longer than its window, which others add to and take from
    other = open_store()
    sent = fill(store, grouped, "a" * (2 * WINDOW + 10))
    came: list[bytes] = []
    for number, limit in enumerate([1, WINDOW - 1, 1, WINDOW + 20, 5, 1000, 1000]):
        client = (store, other)[number % 2]
        sent += fill(other, grouped, "ab")[:1]
        ids, spans = take(client, grouped, limit)
        of_a = [bundle_id for bundle_id in ids if bundle_id in {each.id for each in sent}]
        came += of_a
        assert client.acknowledge(Acknowledge(grouped, spans)) == Fenced()
    # Then it is delivered in the order of the appends, and nothing is left
    assert came == [each.id for each in sent]
    assert store.count(grouped) == ShardCounts()


def test_a_look_at_a_long_group_shows_all_of_it_page_by_page(store: CassandraStore, grouped: Shard) -> None:
    sent = fill(store, grouped, "a" * (WINDOW + 30))
    take(store, grouped, 3)
    shown: list[bytes] = []
    after = b""
    while True:
        page = store.peek(Peek(grouped, 7, after=after, bodies=False))
        shown += [each.bundle.id for each in page.slices]
        after = page.after
        if not after:
            break
    assert shown == [each.id for each in sent]
    counts = ShardCounts(ready=WINDOW + 27, in_flight=3, oldest=sent[0].enqueued_at)
    assert store.count(grouped) == counts  # no message is late: all wait behind those that are held


def test_what_comes_first_long_after_it_was_due_is_found_without_a_deep_look(
    store: CassandraStore, open_store: Opens, grouped: Shard
) -> None:
    # Given groups with messages of an hour ago behind others, while newer ones raise the low watermarks
    fill(store, grouped, ["a"], delay=-3600)
    behind = fill(store, grouped, ["a"], delay=-3600)
    others = [open_store(), open_store()]
    _, held = take(store, grouped, 1)
    for each in (store, *others):
        fill(store, grouped, ["b"])
        _, spans = take(each, grouped, 10)
        store.acknowledge(Acknowledge(grouped, spans))
    _raise_watermarks(store, grouped)
    # When the one before is acked, every client finds what was behind
    store.acknowledge(Acknowledge(grouped, held))
    for each in others:
        assert each.probe([grouped])[0].due is not None
    ids, _ = take(others[0], grouped, 10)
    assert ids == [behind[0].id]


def _raise_watermarks(store: CassandraStore, shard: Shard) -> None:
    now = store.now
    store.now = lambda: now() + 10_000_000  # type: ignore[method-assign]
    store.probe([shard])
    store.now = now  # type: ignore[method-assign]


def test_the_longest_messages_have_groups_too(store: CassandraStore, grouped: Shard) -> None:
    make = BundleFactory(store.now)
    long = make(group="a", data=os.urandom(store.capabilities.max_message_bytes))
    store.append(Append(grouped, (long, make(group="a"))))
    claimed = store.claim(Claim(grouped, b"t" * 16, 1, MINUTE))
    assert claimed.slices[0].bundle == long


def test_a_keyspace_of_before_is_brought_up_to_date_and_its_queues_have_groups_then(
    store: CassandraStore, open_store: Opens, grouped: Shard
) -> None:
    # Given a keyspace of the version before, to which a message was sent
    plain = Shard(grouped.queue, 0, 0)
    (sent,) = fill(store, plain, [""])
    store.session.apply([("UPDATE schema_version SET version = ? WHERE part = 'shardq' IF EXISTS", (2,))])
    # Then clients refuse it until the schema is applied, and go on with what it holds
    with pytest.raises(SchemaMismatch, match="needs 4"):
        open_store().load_queue(grouped.queue)
    open_store().create_schema()
    again = open_store()
    assert again.load_queue(grouped.queue) is not None
    fill(again, grouped, ["a"])
    assert take(again, plain, 9)[0] == [sent.id]
    assert len(take(again, grouped, 9)[0]) == 1


class _SlowSession(Session):
    """Lets time pass before a conditional batch is carried out."""

    before: Callable[[], object] = staticmethod(lambda: None)

    def apply(self, statements: Sequence[Statement]) -> bool:
        self.before()
        return super().apply(statements)


def test_what_becomes_first_by_a_write_that_was_long_on_its_way_is_found_by_all(
    open_store: Opens, open_with: OpensWith, grouped: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, (store, slow) = open_store(), open_with(_SlowSession)
    _, second = fill(store, grouped, "aa")
    _, spans = take(store, grouped, 1)
    # Given a client that acks what it read, while the other looks beyond the moment at which the next one is due
    now = other.clock.now

    def pass_by() -> None:
        slow.before = lambda: None
        for client in (store, other):
            monkeypatch.setattr(client.clock, "now", lambda: now() + 3_000_000)
        assert take(other, grouped, 1) == ([], ())

    slow.before = pass_by
    store.acknowledge(Acknowledge(grouped, spans))
    # Then the other one is told that something came late
    ids, _ = take(other, grouped, 1)
    assert ids == [second.id]


def test_changes_of_many_groups_get_through_while_others_send_to_them_all_the_time(
    open_store: Opens, open_with: OpensWith, grouped: Shard
) -> None:
    # Given a client ahead of each of whose changes another one sends to one of the groups
    other, names, (store, slow) = open_store(), "abcdefgh", open_with(_SlowSession)
    sent, turns = fill(store, grouped, names), itertools.cycle(names)
    _, spans = take(store, grouped, len(names))
    later: list[Bundle] = []
    slow.before = lambda: later.extend(fill(other, grouped, next(turns)))
    # Then all of them are done, each once
    assert store.extend(Extend(grouped, spans, 2 * MINUTE)) == Fenced()
    assert store.release(Release(grouped, spans[:4])) == Fenced()
    assert store.acknowledge(Acknowledge(grouped, spans)).lost == spans[:4]
    mine = fill(store, grouped, names)
    ids, _ = take(store, grouped, len(names))
    assert {each.id for each in sent[:4]} & set(ids) or {each.id for each in later} & set(ids)
    slow.before = lambda: None
    waiting = {each.bundle.id for each in store.peek(Peek(grouped, 1000)).slices}
    assert waiting == {each.id for each in (*sent[:4], *later, *mine)}


def test_a_long_group_is_claimed_while_others_are_quicker_than_a_large_claim(
    store: CassandraStore, open_store: Opens, grouped: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, apply = open_store(), Session.apply
    sent = fill(store, grouped, ["a"] * 200)

    def slow_if_large(session: Session, statements: Sequence[Statement]) -> bool:
        if session is store.session and len(statements) > 50:
            fill(other, grouped, "a")
        return apply(session, statements)

    monkeypatch.setattr(Session, "apply", slow_if_large)
    ids, _ = take(store, grouped, 200)
    assert ids
    assert ids == [each.id for each in sent[: len(ids)]]


def test_a_repeated_claim_holds_nothing_beside_what_the_first_one_holds(
    store: CassandraStore, open_with: OpensWith, grouped: Shard
) -> None:
    fill(store, grouped, ["c"])
    store.acknowledge(Acknowledge(grouped, take(store, grouped, 1)[1]))  # raises the low watermarks
    # Given a claim whose repetition comes in its way, and finds another group first
    (late, slow), first = open_with(_SlowSession), Claim(grouped, b"t" * 16, 1, MINUTE)
    fill(store, grouped, ["b"])
    make = BundleFactory(store.now)
    urgent = make(group="a", priority=0, delay=-60)
    answers: list[Any] = []

    def repeat() -> None:
        slow.before = lambda: None
        store.append(Append(grouped, (urgent,)))
        answers.append(store.claim(first))

    slow.before = repeat
    # When the first one goes on
    answers.append(late.claim(first))
    # Then both hold the same, and that is found again when the lease is over
    assert [[each.bundle.id for each in answer.slices] for answer in answers] == [[urgent.id]] * 2
    assert store.count(grouped).in_flight == 1


def test_what_is_sent_to_a_group_while_its_queue_is_deleted_is_nowhere(
    store: CassandraStore, open_store: Opens, open_with: OpensWith, grouped: Shard
) -> None:
    # Given a client that stands still in an append, while its queue is dropped
    (slow, session), other = open_with(_SlowSession), open_store()
    fill(slow, grouped, ["a"])

    def drop() -> None:
        session.before = lambda: None
        assert other.drop_queue(grouped.queue)

    session.before = drop
    # Then it is told, and nothing is left
    with pytest.raises(QueueNotFound):
        fill(slow, grouped, ["a"])
    rows = store.session.read("SELECT DISTINCT shard FROM entry", ())
    assert not [row for row in rows if row[0].startswith(grouped.queue)]


@pytest.mark.parametrize("of_groups", [False, True])
def test_a_count_asks_at_once_for_all_priorities_that_share_no_request(
    store: CassandraStore, shard: Shard, grouped: Shard, monkeypatch: pytest.MonkeyPatch, of_groups: bool
) -> None:
    counted = grouped if of_groups else shard
    fill(store, counted, ["a", "b"] if of_groups else ["", ""])
    places = tuple(
        (-FOREVER + number % 2, b"", FIRST) for number in PRIORITIES
    )  # no neighbours have the same
    monkeypatch.setattr(Control, "places", property(lambda _: places))
    begin, under_way, most = Session.start_read, 0, 0

    def noted(session: Session, *query: Any, **options: Any) -> Any:
        nonlocal under_way, most
        answer = begin(session, *query, **options)
        under_way += 1
        most = max(most, under_way)

        def answered() -> Any:
            nonlocal under_way
            under_way -= 1
            return answer()

        return answered

    monkeypatch.setattr(Session, "start_read", noted)
    assert store.count(counted).ready == 2
    assert most >= len(PRIORITIES)


def test_a_purge_ends_however_much_others_change_the_shard(
    store: CassandraStore, grouped: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given groups with messages that wait or are held, and others that change the shard all the time
    fill(store, grouped, [f"g{number}" for number in range(20)] * 2)
    take(store, grouped, 10)
    monkeypatch.setattr(WideRow, "undisturbed", lambda _, look: (look(), False))
    # Then a purge removes all of them, and ends
    assert store.purge(grouped) == 40
    assert store.count(grouped) == ShardCounts()
