"""Low watermarks follow what was consumed, and go back for what comes late."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from shardq.base.shard import Shard
from shardq.storage.migrations import migrations
from shardq.storage.postgresql import schema
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, QueueRecord, Release, Span
from shardq.testing import BundleFactory, ManualClock
from tests.postgresql.blocked import until_blocked

pytestmark = pytest.mark.server
LEASE = 86_400_000_000  # a day: the clock goes on while others hold the watermarks back


class SetClock(ManualClock):
    """A clock that may be set back."""

    behind = 0

    def now(self) -> int:
        return super().now() - self.behind


class Bench:
    """A store on a manual clock, and its rows."""

    limit = 10

    def __init__(self, url: str) -> None:
        self.clock, (self.address, _) = SetClock(), parse(url)
        self.store = PostgresStore(self.address, clock=self.clock)
        self.shard = Shard(f"q{os.urandom(5).hex()}", 0, 0)
        assert self.store.create_queue(QueueRecord(self.shard.queue, b"", 1))
        self.make = BundleFactory(self.store.now)

    def sent(self, *, delay: float = 0.0, priority: int = 0) -> Bundle:
        bundle = self.make(1, delay=delay, priority=priority)
        self.store.append(Append(self.shard, (bundle,), fresh=True))
        return bundle

    def claimed(self) -> tuple[Span, ...]:
        token = os.urandom(16)
        slices = self.store.claim(Claim(self.shard, token, self.limit, LEASE)).slices
        return tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)

    def consume(self, seconds: int) -> None:
        """Send and ack a message each second."""
        for _ in range(seconds):
            self.sent()
            self.store.acknowledge(Acknowledge(self.shard, self.claimed()))
            self.clock.advance(1)

    def consume_until_raised(self, above: int = 0) -> list[int]:
        """Other tests may have transactions under way on the server, which end."""
        until = time.monotonic() + 60
        low = self.low
        while (low is None or low[0] <= above) and time.monotonic() < until:
            self.consume(4)
            low = self.low
        assert low is not None and low[0] > above
        return low

    @property
    def low(self) -> list[int] | None:
        with psycopg.connect(self.address.conninfo) as connection:
            found = connection.execute(
                f"SELECT low FROM {self.address.schema}.watermark JOIN {self.address.schema}.shard USING (shard_key) "
                f"JOIN {self.address.schema}.queue USING (queue_key) WHERE name = %s",
                (self.shard.queue,),
            ).fetchone()
        low: list[int] | None = found[0] if found else None
        return low


@pytest.fixture
def bench(schema_url: str) -> Iterator[Bench]:
    bench = Bench(schema_url)
    yield bench
    bench.store.drop_queue(bench.shard.queue)
    bench.store.close()


@contextmanager
def writing(bench: Bench) -> Iterator[None]:
    """Another transaction of the server has written something, and goes on."""
    with psycopg.connect(bench.address.conninfo) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        yield


def test_they_follow_what_was_consumed(bench: Bench) -> None:
    began = bench.store.now()
    low = bench.consume_until_raised()
    assert all(began - 3_000_000 < moment < bench.store.now() - 2_000_000 for moment in low)


def test_they_stay_while_a_transaction_may_still_store_something_below_them(bench: Bench) -> None:
    with writing(bench):
        bench.consume(10)
        assert bench.low is None
    assert bench.consume_until_raised()


def test_they_stay_below_what_waits_in_a_priority(bench: Bench) -> None:
    bench.sent(priority=7)
    waiting = bench.store.now()
    bench.clock.advance(1)
    bench.limit = 1
    low = bench.consume_until_raised()
    assert low[0] > waiting - 3_000_000
    assert low[7] <= waiting
    bench.limit = 10
    assert len(bench.claimed()) == 1


@pytest.mark.parametrize("comes", ["sent late", "given back"])
def test_what_comes_below_them_is_found_at_once(bench: Bench, comes: str) -> None:
    bench.sent()
    held = bench.claimed()
    bench.consume_until_raised(above=bench.store.now())
    if comes == "given back":
        bench.store.release(Release(bench.shard, held, started=False))
    else:
        bench.sent(delay=-300)
    assert bench.store.probe([bench.shard])[0].priority == 0
    assert len(bench.claimed()) == 1


def test_what_came_late_while_they_were_read_keeps_them_from_being_raised(
    bench: Bench, schema_url: str
) -> None:
    other: Callable[[], PostgresStore] = lambda: PostgresStore(bench.address, clock=bench.clock)  # noqa: E731
    late = other()
    bench.consume(2)
    bundle = bench.make(1, delay=-300)
    late.append(Append(bench.shard, (bundle,), fresh=True))
    bench.consume_until_raised()  # which takes it, too
    assert late.probe([bench.shard], deep=True) == bench.store.probe([bench.shard])
    late.close()


def test_what_is_stored_long_after_it_was_sent_is_found_at_once(bench: Bench) -> None:
    bench.sent()
    bundle = bench.make(1, data=b"x" * 5000)
    with psycopg.connect(bench.address.conninfo) as other:
        # A stronger lock would give this transaction a number, and keep the watermarks low.
        other.execute(f"LOCK TABLE {bench.address.schema}.bundle_data IN SHARE MODE")
        append = Append(bench.shard, (bundle,), fresh=True)
        storing = threading.Thread(target=bench.store.append, args=(append,))
        storing.start()
        until_blocked(other)
        until = time.monotonic() + 60
        low: list[int] | None = None
        while low is None or low[0] <= bundle.due:  # others read meanwhile, and find nothing
            assert time.monotonic() < until
            bench.clock.advance(4)
            bench.claimed()
            low = bench.low
    storing.join()
    assert [each.bundle_id for each in bench.claimed()] == [bundle.id]


def test_they_hide_nothing_when_the_clock_is_set_back(bench: Bench) -> None:
    bench.consume_until_raised()
    bench.clock.behind = 3_600_000_000
    bundle = bench.sent()
    assert bench.store.probe([bench.shard])[0].due == bundle.due
    assert [each.bundle_id for each in bench.claimed()] == [bundle.id]


def test_they_follow_a_clock_that_was_ahead(bench: Bench) -> None:
    bench.clock.behind = -3_600_000_000
    ahead = bench.consume_until_raised()
    bench.clock.behind = 0
    until = time.monotonic() + 60
    while (bench.low or ahead)[0] > bench.store.now():
        assert time.monotonic() < until
        bench.consume(4)


def test_watermarks_that_are_lowered_while_the_schema_is_applied_are_kept(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"t{os.urandom(5).hex()}"
    store = PostgresStore(parse(f"{postgresql_url}?schema={name}")[0])
    with monkeypatch.context() as before:
        before.setattr(schema, "migrations", lambda store: migrations(store)[:2])
        store.create_schema()
    with psycopg.connect(postgresql_url) as other:
        low = f"UPDATE {name}.shard SET late = %s, low = array_fill(%s::bigint, ARRAY[10])"
        other.execute(f"INSERT INTO {name}.shard (queue_key, time_shard, number) VALUES (1, 0, 0)")
        other.execute(low, (7, 2_000))
        other.commit()
        other.execute(low, (8, 1_000))
        applying = threading.Thread(target=store.create_schema)
        applying.start()
        until_blocked(other)
        other.commit()
        applying.join()
        assert other.execute(f"SELECT late, low[1] FROM {name}.watermark").fetchall() == [(8, 1_000)]
        other.execute(f"DROP SCHEMA {name} CASCADE")
    store.close()
