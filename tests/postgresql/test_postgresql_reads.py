"""What hot statements read beside many rows that are dead or finished: pages and rows, as the server counts them.

The server reports the plan that it has carried out, and what each part of it has read (`auto_explain`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
import pytest

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.postgresql import bundles, connections
from shardq.storage.postgresql.connections import Row, Sql
from shardq.storage.postgresql.read_cursors import HOME_READ, Read, raise_to
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    DedupeEntry,
    Extend,
    Forward,
    QueueRecord,
    Release,
    Span,
    Sweep,
)
from shardq.testing import BundleFactory, ManualClock
from tests.local_server import do_without, local_server
from tests.steps import MINUTE

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(900)]

MANY = 100_000
OFTEN = 7  # times that each step is done: after five the server may plan a statement for all values
BATCH = 50
RARE = "SELECT EXISTS (SELECT FROM"  # of each table of finished ids, once before it is emptied
# At most; a scan of the dead or finished rows reads a thousand pages or more.
PAGES_OF_A_READ, PAGES_OF_A_ROW = 400, 12
PAGES_OF_THOSE = {"queue": 20, "shard": 20, "watermark": 20}  # tables that each request reads
_SETTINGS = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "warning",
}
EXPLAINED = "options=" + quote(" ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()))
HOME = "SELECT s.shard_key, s.queue_key FROM {0}.shard s JOIN {0}.queue q USING (queue_key) WHERE q.name = %s"
HOUR = 3_600_000_000
KNOWN = ("", "VACUUM", "ANALYZE", *["VACUUM"] * 4)  # what the server knows of the tables, one after the other
# Rows that were due in the hour before the last one.
FILL = """
    INSERT INTO {0}.slice (
        shard_key, bundle_id, first, count, sent_count, priority, due, sent_due, enqueued_at, processed_at,
        message_group, place, data
    )
    SELECT %(shard)s, gen_random_uuid(), 0, 1, 1, 0, due, due, due, CASE WHEN %(kept)s THEN due END, %(group)s, n, 'x'
    FROM generate_series(1, %(many)s) AS n, LATERAL (SELECT %(now)s - 7200000000 + n::bigint * 36000) AS m (due)
"""
CLAIM = "UPDATE {0}.slice SET token = gen_random_uuid(), due = due + 30000000 WHERE shard_key = %s AND token IS NULL"
DELETE = "DELETE FROM {0}.slice WHERE shard_key = %s"
LONG = """
    INSERT INTO {0}.bundle_data (shard_key, bundle_id, data) SELECT shard_key, bundle_id, '' FROM {0}.slice
    WHERE shard_key = %s
"""
DELETE_LONG = "DELETE FROM {0}.bundle_data WHERE shard_key = %s"
FINISH = """
    INSERT INTO {0}.finished (period, queue_key, bundle_id)
    SELECT %s, %s, gen_random_uuid() FROM generate_series(1, %s)
"""
KEYS = """
    INSERT INTO {0}.key (queue_key, kind, key, value, confirmed, expires_at)
    SELECT %s, kind, convert_to('old' || n, 'UTF8'), 'x', true, 4611686018427387904
    FROM generate_series(1, %s) AS n, generate_series(0, 1) AS kind
"""


class Scan(msgspec.Struct, frozen=True):
    """A read of a table or an index by a statement."""

    statement: str
    kind: str
    table: str
    index: str
    rows: float
    pages: int


class Plans:
    """The scans of the statements that were carried out."""

    def __init__(self) -> None:
        self.scans: list[Scan] = []
        self.pages = 0  # also those of indexes that are changed

    def __call__(self, notice: psycopg.errors.Diagnostic) -> None:
        text = notice.message_primary or ""
        if text.startswith("duration: "):
            told = msgspec.json.decode(text[text.index("{") :])
            self.pages += _pages(told["Plan"])
            self._note(told["Plan"], " ".join(told["Query Text"].split()))

    def _note(self, node: Mapping[str, Any], statement: str) -> None:
        parts: Sequence[Mapping[str, Any]] = node.get("Plans", ())
        if "Scan" in node["Node Type"] and ("Relation Name" in node or "Index Name" in node):
            loops = node["Actual Loops"]
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            pages = _pages(node) - sum(map(_pages, parts))
            table, index = node.get("Relation Name", ""), node.get("Index Name", "")
            self.scans.append(Scan(statement, node["Node Type"], table, index, rows * loops, pages))
        for part in parts:
            self._note(part, statement)


def _pages(node: Mapping[str, Any]) -> int:
    return int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"])


class World:
    """A queue on a server, whose clock stands still unless it is moved."""

    def __init__(self, url: str, plans: Plans) -> None:
        self.clock, (self.address, _), self.plans = ManualClock(), parse(url), plans
        self.store = PostgresStore(self.address, clock=self.clock)
        self.queue = "reads"
        self.shard, self.target = Shard(self.queue, 0, 0), Shard(self.queue, 1, 0)
        self.grouped = Shard(self.queue, GROUP_TIME_SHARD, 0)
        assert self.store.create_queue(QueueRecord(self.queue, b"", 1))
        self.make = BundleFactory(self.store.now)
        self.monitor = psycopg.connect(self.address.conninfo, autocommit=True)

    def run(
        self, statement: str, values: Sequence[object] | Mapping[str, object] | None = None
    ) -> list[tuple[Any, ...]]:
        done = self.monitor.execute(statement.format(self.address.schema), values)
        return done.fetchall() if done.description else []

    def send(self, count: int, shard: Shard | None = None, *, messages: int = 1) -> None:
        shard = shard or self.shard
        made = tuple(
            self.make(messages, group=f"g{number}" if shard.is_grouped else "") for number in range(count)
        )
        self.store.append(Append(shard, made, fresh=True))

    def take(self, limit: int, shard: Shard | None = None) -> tuple[Span, ...]:
        spans = self.taken(limit, shard)
        assert spans
        return spans

    def taken(self, limit: int, shard: Shard | None = None) -> tuple[Span, ...]:
        token = os.urandom(16)
        slices = self.store.claim(Claim(shard or self.shard, token, limit, MINUTE)).slices
        return tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)

    def ack(self, spans: Sequence[Span], shard: Shard | None = None) -> None:
        self.store.acknowledge(Acknowledge(shard or self.shard, tuple(spans)))

    def let_watermarks_follow(self) -> None:
        """Send and ack a message each second, until claims begin behind what is dead."""
        for _ in range(30):
            self.send(1)
            self.ack(self.take(10))
            self.clock.advance(1)
            ((low,),) = self.run(
                "SELECT low[1] FROM {0}.watermark JOIN {0}.shard USING (shard_key) WHERE time_shard = 0 AND number = 0"
            )
            if low is not None and low > self.store.now() - 30_000_000:
                return
        raise AssertionError("the low watermarks stay")

    def raise_watermarks(self) -> None:
        """Raise them as often as a consumer does in half an hour."""
        for _ in range(1_800):
            shard_key, _, low, late, step = self.store.session.read(_watermarks, self.shard)
            seen = Read(shard_key, low, late, step, 0, 0, 0)
            self.store.session.statement(raise_to, seen, [moment + 1 for moment in low])


def _watermarks(sql: Sql, shard: Shard) -> Row:
    row = sql.one(HOME_READ, shard.queue, shard.time_shard, shard.number)
    assert row is not None
    return row


def _planned_again(sql: Sql) -> list[Row]:
    """Return the statements of the session that are planned again for each execution."""
    return sql.all("SELECT statement FROM pg_prepared_statements WHERE custom_plans > 1")


def single(world: World) -> None:
    world.send(1)
    world.ack(world.take(1))


def bulk(world: World) -> None:
    world.send(BATCH)
    world.ack(world.take(BATCH))


def parts(world: World) -> None:
    """Cut a bundle in the claim, and settle its messages in different ways."""
    world.send(1, messages=10)
    (span,) = world.take(7)
    one, two, three, four = (Span(span.bundle_id, at, 1, span.token) for at in range(4))
    world.store.extend(Extend(world.shard, (one,), MINUTE))
    world.store.release(Release(world.shard, (two,), started=False))
    forward = Forward(Acknowledge(world.shard, (three,)), Append(world.target, (world.make(1),)))
    world.store.forward(forward)
    world.ack((one, four, Span(span.bundle_id, 4, 3, span.token)))
    world.ack(world.take(10))
    world.ack(world.take(10, world.target), world.target)


def fronts(world: World) -> None:
    """Ack a whole bundle with a part of another one, and the rest one message after the other."""
    world.send(2, messages=3)
    world.ack(world.take(4))
    (rest,) = world.take(2)
    for at in range(rest.first, 3):
        world.ack((Span(rest.bundle_id, at, 1, rest.token),))


def groups(world: World) -> None:
    world.send(5, world.grouped, messages=2)
    world.ack(world.take(5, world.grouped), world.grouped)
    world.ack(world.take(20, world.grouped), world.grouped)


def offers(world: World) -> None:
    world.store.probe([world.shard, world.grouped])
    world.store.probe([world.shard, world.grouped], glance=True)


def keys(world: World) -> None:
    entries = [DedupeEntry(os.urandom(8).hex(), "id", confirmed=False) for _ in range(3)]
    world.store.reserve_keys(world.queue, entries, 60_000_000)
    world.store.confirm_keys(world.queue, entries)


def registration(world: World) -> None:
    world.store.register_consumer([world.queue], "consumer", 16_000_000)


def long(world: World) -> None:
    """Send and ack a message whose data is stored beside it."""
    bundle = world.make(2, data=b"x" * 3000)
    world.store.append(Append(world.shard, (bundle,)))
    world.ack([Span(each.bundle_id, 0, 1, each.token) for each in world.take(1)])
    world.ack(world.take(1))


def lapsed(world: World) -> None:
    """Claim messages of groups again when their lease has ended."""
    world.send(2, world.grouped, messages=2)
    world.take(4, world.grouped)
    world.clock.advance(2 * MINUTE / 1e6)
    spans = world.take(2, world.grouped)
    world.store.release(Release(world.grouped, spans[:1], started=False))
    while spans := world.taken(10, world.grouped):
        world.ack(spans, world.grouped)


def repeated(world: World) -> None:
    """Repeat an append, a claim and an ack."""
    append = Append(world.shard, (world.make(1),))
    world.store.append(append)
    world.store.append(append)
    claim = Claim(world.shard, os.urandom(16), 1, MINUTE)
    for _ in range(2):
        (held,) = world.store.claim(claim).slices
    ack = Acknowledge(world.shard, (Span(held.bundle.id, 0, 1, claim.token),))
    world.store.acknowledge(ack)
    world.store.acknowledge(ack)


def removal(world: World) -> None:
    """Find a message and remove it."""
    bundle = world.make(3)
    world.store.append(Append(world.shard, (bundle,)))
    assert world.store.find(world.shard, bundle.id, 1) is not None
    assert world.store.remove(world.shard, bundle.id, 1)
    world.ack(world.take(5))


STEPS = (single, bulk, parts, fronts, long, groups, lapsed, offers, keys, registration, repeated, removal)


@contextmanager
def old_snapshot(world: World) -> Iterator[None]:
    """A transaction to which rows are visible that are deleted meanwhile."""
    with psycopg.connect(world.address.conninfo) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM pg_class")
        yield
        connection.rollback()


def fill(world: World, *, kept: bool = False, group: bytes = b"") -> None:
    shard = world.grouped if group else world.shard
    shard_key, _ = _home(world, shard)
    values = {"shard": shard_key, "kept": kept, "group": group, "many": MANY, "now": world.store.now()}
    world.run(FILL, values)


def _home(world: World, shard: Shard) -> tuple[int, int]:
    ((shard_key, queue_key),) = world.run(
        f"{HOME} AND s.time_shard = %s AND s.number = %s", (shard.queue, shard.time_shard, shard.number)
    )
    return shard_key, queue_key


def dead(world: World) -> None:
    """Messages that were sent, claimed and acked."""
    fill(world)
    shard_key, _ = _home(world, world.shard)
    world.run(CLAIM, (shard_key,))
    world.run(LONG, (shard_key,))
    world.run(DELETE_LONG, (shard_key,))
    world.run(DELETE, (shard_key,))


def finished(world: World) -> None:
    """Messages in the history, ids that are remembered, and keys."""
    fill(world, kept=True)
    _, queue_key = _home(world, world.shard)
    period = bundles.period_of(world.store.now())
    world.run(FINISH, (period, queue_key, MANY))
    world.run(KEYS, (queue_key, MANY // 2))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    plans = Plans()
    connect = connections.connect

    def explained(address: connections.Address) -> connections.Driver:
        driver = connect(address)
        driver.add_notice_handler(plans)
        return driver

    with (
        local_server("postgresql", "--without-fsync", "--set", "autovacuum=off") as (url, _),
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(connections, "connect", explained)
        try:
            world = World(f"{url}?{EXPLAINED}", plans)
        except Exception as error:
            if "auto_explain" in str(error):
                do_without(f"this PostgreSQL has no auto_explain: {error}")
            raise
        for shard in (world.shard, world.target, world.grouped):  # which lists them
            world.send(1, shard)
            world.ack(world.take(1, shard), shard)
        yield world
        world.store.close()
        world.monitor.close()


def offences(world: World, step: Callable[[World], None]) -> Iterator[str]:
    """Do a step, and yield the scans that read too much."""
    world.plans.scans.clear()
    for _ in range(OFTEN):
        step(world)
    assert world.plans.scans, "the server reports its plans"
    for scan in world.plans.scans:
        if scan.statement.startswith(RARE):
            continue
        if scan.rows > 10 * BATCH:
            yield f"many rows are read: {scan}"
        elif scan.pages > PAGES_OF_THOSE.get(scan.table, PAGES_OF_A_READ) + PAGES_OF_A_ROW * scan.rows:
            yield f"many pages are read: {scan}"


@pytest.mark.parametrize("rows", [dead, finished], ids=lambda each: each.__name__)
def test_hot_statements_read_little_beside_many_rows(world: World, rows: Callable[[World], None]) -> None:
    found: dict[str, Sequence[str]] = {}
    with old_snapshot(world):
        rows(world)
        world.store.sweep(Sweep(world.queue, 0))
        for number, known in enumerate(KNOWN):
            if known:
                world.run(known)
            world.let_watermarks_follow()
            world.raise_watermarks()
            world.store.close()  # new connections have no plans
            for step in STEPS:
                found[f"{step.__name__}, {number}: {known}"] = sorted(set(offences(world, step)))
            found[f"plans, {number}: {known}"] = [
                each for (each,) in world.store.session.read(_planned_again)
            ]
    shard_key, _ = _home(world, world.shard)
    world.run(DELETE, (shard_key,))
    world.run("TRUNCATE {0}.key, {0}.finished")
    world.run("VACUUM ANALYZE")
    assert {step: scans for step, scans in found.items() if scans} == {}
