"""Who settles beside others that keep a lock waits for no longer than needed, and keeps nobody else waiting."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

import shardq
from shardq.base.shard import Shard
from shardq.storage.abilities import Locked
from shardq.storage.postgresql import settling
from shardq.storage.postgresql.connections import Row, Sql
from shardq.storage.postgresql.locks import BRIEF
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Acknowledge, Append, Claim, Extend, Fenced, Release, Span
from shardq.testing import BundleFactory
from tests.postgresql.blocked import until_blocked
from tests.steps import MINUTE

pytestmark = pytest.mark.server


@pytest.fixture
def client(schema_url: str) -> Iterator[shardq.Client]:
    with shardq.connect(schema_url, retry_seconds=1) as client:
        yield client


def test_acks_beside_that_of_a_locked_message_succeed(client: shardq.Client, schema_url: str) -> None:
    queue = client.create_queue(f"l{os.urandom(5).hex()}", shards=1, time_shards=1)
    for number in range(8):
        queue.producer().send(b"%d" % number)
    receipts = [message.receipt for message in queue.consumer().receive(8)]
    told: dict[int, Exception | None] = {}

    def ack(number: int) -> None:
        told[number] = None
        try:
            queue.ack([receipts[number]])
        except shardq.StoreUnavailable as error:
            told[number] = error

    with psycopg.connect(parse(schema_url)[0].conninfo) as app:
        with client.transaction(connection=app) as within:
            within.queue(queue.name).ack(receipts[:2])
        threads = [threading.Thread(target=ack, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(number for number, error in told.items() if error is not None) == [0, 1]
        app.rollback()
    assert queue.counts().in_flight == 2
    client.delete_queue(queue.name)


def test_a_part_that_a_long_transaction_acks_keeps_nobody_from_extending_the_others(
    client: shardq.Client, schema_url: str
) -> None:
    queue = client.create_queue(f"l{os.urandom(5).hex()}", shards=1, time_shards=1)
    queue.producer().send_many([b"x"] * 3)
    consumer = queue.consumer()
    parts = [consumer.receive(1) for _ in range(3)]
    with psycopg.connect(parse(schema_url)[0].conninfo) as app:
        with client.transaction(connection=app) as within:
            within.queue(queue.name).ack([parts[0][0].receipt])
        for part in parts[1:]:
            part.extend(60)
        app.commit()
    assert queue.counts().in_flight == 2
    for part in parts[1:]:
        part.ack()
    assert queue.counts().in_flight == 0
    client.delete_queue(queue.name)


def test_an_ack_of_a_part_whose_commit_takes_long_keeps_nobody_from_extending_or_releasing_the_others(
    store: PostgresStore, open_store: Callable[..., PostgresStore], shard: Shard
) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(3),)))
    parts = list[Span]()
    for token in (b"a" * 16, b"b" * 16, b"c" * 16):
        (held,) = store.claim(Claim(shard, token, 1, MINUTE)).slices
        parts.append(Span(held.bundle.id, held.first, 1, token))
    is_acked, goes_on = threading.Event(), threading.Event()

    def ack(sql: Sql, now: int) -> bool:
        is_done = settling.delete_at_once(sql, Acknowledge(shard, (parts[0],)), now)
        is_acked.set()
        return goes_on.wait(30) and is_done

    with ThreadPoolExecutor() as threads:
        acking = threads.submit(open_store().session.write, ack)
        assert is_acked.wait(30)
        try:
            for part in parts[1:]:
                assert store.extend(Extend(shard, (part,), MINUTE)) == Fenced()
                assert store.release(Release(shard, (part,))) == Fenced()
        finally:
            goes_on.set()
        assert acking.result(30)
    assert store.count(shard).ready == 2


def test_an_ack_of_a_part_waits_half_a_second_at_most_for_the_slice_that_stays(
    store: PostgresStore, shard: Shard, schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SKIP LOCKED waits for a newer version of a row, but no test can stop a statement at that moment.
    real, skips, waits = Sql.all, "FOR KEY SHARE OF s SKIP LOCKED", "FOR KEY SHARE OF s"
    monkeypatch.setattr(Sql, "all", lambda sql, text, *values: real(sql, text.replace(skips, waits), *values))
    store.append(Append(shard, (BundleFactory(store.now)(2),)))
    (held,) = store.claim(Claim(shard, b"a" * 16, 1, MINUTE)).slices
    address, _ = parse(schema_url)
    with psycopg.connect(address.conninfo) as other, ThreadPoolExecutor() as threads:
        other.execute(f"SELECT 1 FROM {address.schema}.slice WHERE first = 1 FOR UPDATE")
        acking = threads.submit(
            store.acknowledge, Acknowledge(shard, (Span(held.bundle.id, 0, 1, b"a" * 16),))
        )
        try:
            with pytest.raises(Locked):
                acking.result(5)
        finally:
            other.rollback()


@pytest.mark.parametrize("in_application", [True, False])
def test_an_ack_in_a_transaction_and_an_extension_of_the_same_messages_do_not_wait_for_each_other(
    store: PostgresStore, shard: Shard, schema_url: str, in_application: bool
) -> None:
    # Given an extension of three messages that holds the first and waits for the second
    make, token = BundleFactory(store.now), os.urandom(16)
    store.append(Append(shard, tuple(make(1) for _ in range(3))))
    held = store.claim(Claim(shard, token, 3, MINUTE)).slices
    spans = tuple(sorted(Span(each.bundle.id, 0, 1, token) for each in held))
    address, _ = parse(schema_url)

    def ack() -> object:
        request = Acknowledge(shard, (spans[0], spans[2]))
        if not in_application:
            return store.settle([request])
        with psycopg.connect(address.conninfo) as app:
            return store.within(app).acknowledge(request)

    lock = f"SELECT 1 FROM {address.schema}.slice WHERE bundle_id = %s::uuid FOR UPDATE"
    with psycopg.connect(address.conninfo) as other, ThreadPoolExecutor() as threads:
        other.execute(lock, (spans[1].bundle_id.hex(),))
        extending = threads.submit(store.extend, Extend(shard, spans, MINUTE))
        extender = until_blocked(other)
        # When the first and the third are acked meanwhile, and the second is free
        acking = threads.submit(ack)
        until_blocked(other, extender)
        other.rollback()
        # Then both succeed
        assert extending.result(30) == Fenced()
        acking.result(30)
    assert store.count(shard).in_flight == 1


@pytest.mark.parametrize("in_order", [True, False])
def test_settlements_of_several_shards_take_their_locks_in_one_order(
    store: PostgresStore, shard: Shard, schema_url: str, in_order: bool
) -> None:
    make, token = BundleFactory(store.now), os.urandom(16)
    requests: list[Release] = []
    for number in (0, 1):
        own = Shard(shard.queue, 0, number)
        store.append(Append(own, (make(1),)))
        (held,) = store.claim(Claim(own, token, 1, MINUTE)).slices
        requests.append(Release(own, (Span(held.bundle.id, 0, 1, token),)))
    address, _ = parse(schema_url)
    lock = f"SELECT 1 FROM {address.schema}.slice WHERE bundle_id = %s::uuid FOR UPDATE NOWAIT"
    given = requests if in_order else requests[::-1]

    def settle() -> None:
        with suppress(Locked):
            store.session.write(settling.settle, given)

    with psycopg.connect(address.conninfo) as other:
        other.execute(lock, (requests[0].spans[0].bundle_id.hex(),))
        settling_ = threading.Thread(target=settle)
        settling_.start()
        until_blocked(other)
        with psycopg.connect(address.conninfo) as third:
            third.execute(lock, (requests[1].spans[0].bundle_id.hex(),))
    settling_.join()


def test_no_edit_takes_a_message_whose_holder_extends_its_lapsed_lease_at_that_moment(
    client: shardq.Client, schema_url: str
) -> None:
    # Given a message whose lease has expired, and its holder extends that in a transaction that is not committed
    queue = client.create_queue(f"l{os.urandom(5).hex()}", shards=1, time_shards=1)
    sent = queue.producer().send(b"old")
    receipt = queue.consumer(visibility_timeout=0.05).receive()[0].receipt
    while queue.counts().in_flight:
        threading.Event().wait(0.02)
    told: list[shardq.ShardqError] = []

    def edit() -> None:
        try:
            queue.edit(sent, body=b"new")
        except shardq.ShardqError as error:
            told.append(error)

    with psycopg.connect(parse(schema_url)[0].conninfo) as app:
        with client.transaction(connection=app) as within:
            within.queue(queue.name).extend([receipt], 60)
        editing = threading.Thread(target=edit)
        editing.start()
        until_blocked(app)
        app.commit()
        editing.join()

    # Then the edit that waited for it is refused
    (error,) = told
    assert isinstance(error, shardq.MessageNotPending)
    queue.ack([receipt])
    client.delete_queue(queue.name)


def test_answers_of_sorted_settlements_belong_to_their_requests(store: PostgresStore, shard: Shard) -> None:
    make, token = BundleFactory(store.now), os.urandom(16)
    store.append(Append(shard, (make(1),)))
    (held,) = store.claim(Claim(shard, token, 1, MINUTE)).slices
    gone = Span(make(1).id, 0, 1, token)
    first, second = (
        Release(Shard(shard.queue, 0, 1), (gone,)),
        Release(shard, (Span(held.bundle.id, 0, 1, token),)),
    )
    told = store.settle([first, second])
    assert [each.gone for each in told] == [(gone,), ()]


def test_a_claim_that_waited_takes_nothing_that_another_one_took_meanwhile(
    store: PostgresStore, open_store: Callable[..., PostgresStore], shard: Shard, schema_url: str
) -> None:
    # Given a message that is held, and removed by a transaction that is not committed
    make, token = BundleFactory(store.now), os.urandom(16)
    bundles = [make(1) for _ in range(3)]
    store.append(Append(shard, tuple(bundles)))
    claim = Claim(shard, token, 1, MINUTE)
    (held,) = store.claim(claim).slices
    address, _ = parse(schema_url)
    with psycopg.connect(address.conninfo) as other, ThreadPoolExecutor() as threads:
        other.execute(
            f"DELETE FROM {address.schema}.slice WHERE bundle_id = %s::uuid", (held.bundle.id.hex(),)
        )
        # When its claim is repeated, and waits for that, and another claim takes the next message
        repeated = threads.submit(open_store().claim, claim)
        until_blocked(other)
        (next_,) = store.claim(Claim(shard, os.urandom(16), 1, MINUTE)).slices
        other.commit()
        # Then the repeated claim takes the one after it
        (taken,) = repeated.result(30).slices
    assert sorted([held.bundle.id, next_.bundle.id, taken.bundle.id]) == sorted(
        bundle.id for bundle in bundles
    )


@pytest.mark.parametrize("limit", [1, 5])
def test_a_claim_takes_nothing_that_another_one_takes_between_its_read_and_its_lock(
    open_store: Callable[..., PostgresStore],
    store: PostgresStore,
    shard: Shard,
    schema_url: str,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(5),)))
    real, pauses = Sql.all, "pauses AS MATERIALIZED (SELECT pg_advisory_xact_lock(77)), wanted AS"

    def pausing(sql: Sql, statement: str, *values: object) -> list[Row]:
        statement = statement.replace("wanted AS", pauses).replace(f"'{BRIEF}'", "'60s'")
        return real(
            sql, statement.replace("FROM wanted w", "FROM (SELECT * FROM wanted, pauses) AS w"), *values
        )

    slow = open_store(schema_url)
    with psycopg.connect(parse(schema_url)[0].conninfo) as other, ThreadPoolExecutor() as threads:
        other.execute("SELECT pg_advisory_xact_lock(77)")
        monkeypatch.setattr(Sql, "all", pausing)
        claiming = threads.submit(slow.claim, Claim(shard, b"s" * 16, 5, MINUTE))
        until_blocked(other)
        monkeypatch.undo()
        first = store.claim(Claim(shard, b"f" * 16, limit, MINUTE)).slices
        other.rollback()
        second = claiming.result(60).slices
    taken = [each.first + at for each in [*first, *second] for at in range(each.count)]
    assert taken == list(range(5))
