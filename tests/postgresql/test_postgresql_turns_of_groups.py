"""Low watermarks in shards of groups are those of turns, and low places of groups spare reads of what has passed."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.postgresql import groups
from shardq.storage.postgresql.connections import Row, Sql
from shardq.storage.requests import Acknowledge, Append, Release, Sweep
from tests.postgresql.test_postgresql_low_watermarks import Bench

pytestmark = pytest.mark.server

HOUR = 3600


class GroupBench(Bench):
    """The same with a shard of groups."""

    group = "g"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.shard = Shard(self.shard.queue, GROUP_TIME_SHARD, 0)
        self.make_any = self.make
        self.make = lambda *args, **options: self.make_any(*args, group=self.group, **options)  # type: ignore[assignment]

    def run(self, statement: str) -> list[tuple[int, ...]]:
        """Run a statement whose placeholders stand for the shard's key."""
        with psycopg.connect(self.address.conninfo, autocommit=True) as connection:
            schema = self.address.schema
            key = f"(SELECT shard_key FROM {schema}.shard JOIN {schema}.queue USING (queue_key) WHERE name = %s)"
            text = statement.replace("{s}", schema).replace("{key}", key)
            done = connection.execute(text, (self.shard.queue,))
            return done.fetchall() if done.description else []

    @property
    def low_places(self) -> int:
        return len(self.run("SELECT place FROM {s}.group_low WHERE shard_key = {key}"))


@pytest.fixture
def bench(schema_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupBench]:
    monkeypatch.setattr(groups, "SELDOM", 1)
    bench = GroupBench(schema_url)
    yield bench
    bench.store.drop_queue(bench.shard.queue)
    bench.store.close()


def test_a_message_that_waited_for_others_is_found_at_once(bench: GroupBench) -> None:
    bench.sent()
    second = bench.sent()
    bench.limit = 1
    held = bench.claimed()
    bench.group = "other"
    low = bench.consume_until_raised(above=second.due)
    assert low[0] > second.due
    bench.store.acknowledge(Acknowledge(bench.shard, held))
    assert bench.store.probe([bench.shard])[0].due == second.due
    assert [each.bundle_id for each in bench.claimed()] == [second.id]


@pytest.mark.parametrize("comes", ["sent late", "given back"])
def test_what_was_due_before_them_is_found_at_once(bench: GroupBench, comes: str) -> None:
    first = bench.sent()
    held = bench.claimed()
    bench.group = "other"
    bench.consume_until_raised(above=first.due)
    if comes == "given back":
        bench.store.release(Release(bench.shard, held, started=False))
    else:
        bench.group, first = "late", bench.make(1, delay=-300)
        bench.store.append(Append(bench.shard, (first,)))
    assert bench.store.probe([bench.shard])[0].due == first.due
    assert [each.bundle_id for each in bench.claimed()] == [first.id]


def test_a_claim_of_many_groups_reads_them_in_few_requests(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, run = list[str](), Sql.all

    def noted(sql: Sql, statement: str, *values: object) -> list[Row]:
        reads.append(statement)
        return run(sql, statement, *values)

    bench.limit = 400
    bundles = [bench.make_any(1, group=f"g{number}") for number in range(bench.limit)]
    bench.store.append(Append(bench.shard, tuple(bundles)))
    monkeypatch.setattr(Sql, "all", noted)
    assert len(bench.claimed()) == bench.limit
    assert sum("s.message_group <> ALL" in each for each in reads) == 2


def test_a_deep_probe_finds_what_wrong_ones_hide(bench: GroupBench) -> None:
    bundle = bench.sent()
    bench.clock.advance(60)
    bench.run(
        "INSERT INTO {s}.watermark (shard_key, late, step, low) "
        f"VALUES ({{key}}, 9, 0, array_fill({bench.store.now() - 1}::bigint, ARRAY[10]))"
    )
    assert bench.claimed() == ()
    assert bench.store.probe([bench.shard], deep=True)[0].due == bundle.due
    assert [each.bundle_id for each in bench.claimed()] == [bundle.id]


@pytest.mark.parametrize("follows", [False, True], ids=["without watermarks", "with watermarks"])
def test_a_deep_probe_finds_what_got_its_turn_while_the_clock_was_ahead(
    bench: GroupBench, *, follows: bool
) -> None:
    bench.sent()
    second = bench.sent()
    bench.limit = 1
    held = bench.claimed()
    bench.clock.behind = -HOUR * 1_000_000
    bench.store.acknowledge(Acknowledge(bench.shard, held))
    bench.clock.behind = 0
    if follows:
        bench.group = "other"
        bench.consume_until_raised(above=second.due)
        bench.group = "g"
    assert bench.store.probe([bench.shard], deep=True)[0].due == second.due
    assert [each.bundle_id for each in bench.claimed()] == [second.id]


def test_a_sweep_waits_for_no_append_that_raises_a_low_place(bench: GroupBench) -> None:
    bench.consume(1)
    bench.clock.advance(HOUR + 1)
    with psycopg.connect(bench.address.conninfo) as application:
        application.execute("SELECT")
        transaction = bench.store.within(application)
        transaction.append(Append(bench.shard, (bench.make(1),)))
        bench.store.sweep(Sweep(bench.shard.queue, 0))
        application.rollback()
    assert bench.low_places == 1
    bench.store.sweep(Sweep(bench.shard.queue, 0))
    assert bench.low_places == 0


def test_a_group_that_was_empty_begins_where_nothing_else_is(bench: GroupBench) -> None:
    bench.consume(3)
    assert bench.low_places == 1
    sent = [bench.sent() for _ in range(3)]
    bench.clock.behind = HOUR * 1_000_000  # its place stays behind those of the others
    sent.append(bench.sent())
    bench.clock.behind = 0
    assert [each.bundle_id for each in bench.claimed()] == [each.id for each in sent]


def test_sweeps_remove_low_places_of_groups_that_were_empty_for_an_hour(bench: GroupBench) -> None:
    sweep = Sweep(bench.shard.queue, 0)
    bench.consume(1)
    bench.group = "full"
    bench.sent()
    bench.store.sweep(sweep)
    assert bench.low_places == 2
    bench.clock.advance(HOUR + 1)
    bench.store.sweep(sweep)
    assert bench.low_places == 1
    bench.store.acknowledge(Acknowledge(bench.shard, bench.claimed()))
    bench.store.sweep(sweep)
    assert bench.low_places == 0
