"""Reads of many shards, lists of queues and counts, with plans made before there were many rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq.base.shard import Shard
from shardq.storage.postgresql.store import PostgresStore
from tests.postgresql.test_postgresql_reads import CLAIM, World, world
from tests.postgresql.test_postgresql_reads import FILL as FILL_SHARD

__all__ = ["world"]

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(900)]

MANY, ASKED = 3_000, 160
FILL = """
    INSERT INTO {0}.queue (name, version, settings) SELECT 'other' || n, 1, '' FROM generate_series(1, %(many)s) AS n;
    INSERT INTO {0}.shard (queue_key, time_shard, number)
    SELECT queue_key, 100 + n, 0 FROM {0}.queue, generate_series(1, %(many)s) AS n WHERE n = 1 OR name = %(queue)s
"""
PROBES: list[Callable[[PostgresStore, list[Shard]], object]] = [
    lambda store, shards: store.probe(shards),
    lambda store, shards: store.probe(shards, deep=True),
]


@pytest.fixture
def many(world: World) -> None:
    """A queue of many shards, beside many queues."""
    if len(world.store.shards(world.queue)) < MANY:
        for statement in FILL.split(";"):
            world.run(statement, {"many": MANY, "queue": world.queue})
        world.run("ANALYZE")


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("probe", PROBES, ids=["probe", "deep probe"])
def test_each_shard_is_read_once(world: World, probe: Callable[[PostgresStore, list[Shard]], object]) -> None:
    world.plans.scans.clear()
    probe(world.store, [Shard(world.queue, 101 + number, 0) for number in range(ASKED)])
    rows = [scan.rows for scan in world.plans.scans if scan.table == "shard"]
    assert rows, "the server reports what it reads"
    assert max(rows) <= ASKED


@pytest.mark.usefixtures("many")
def test_a_list_of_queues_reads_those_of_the_prefix(world: World) -> None:
    world.plans.scans.clear()
    assert len(world.store.list_queues("other12")) == 111
    assert [scan.rows for scan in world.plans.scans] == [111]


def test_a_count_reads_no_history_but_to_count_it(world: World) -> None:
    ((shard_key,),) = world.run("SELECT shard_key FROM {0}.shard WHERE time_shard = 0 AND number = 0")
    for kept in (False, True):
        values = {"shard": shard_key, "kept": kept, "group": b"", "many": 20 * MANY, "now": world.store.now()}
        world.run(FILL_SHARD, values)
    world.run(CLAIM, (shard_key,))
    world.run("REINDEX INDEX {0}.slice_pkey")  # which is the smallest then
    world.store.close()  # new connections have no plans
    world.plans.scans.clear()
    world.store.count(world.shard, sizes=True)
    found = {scan.index for scan in world.plans.scans if scan.table == "slice"}
    assert found == {"slice_by_due", "slice_by_moment", "slice_by_token"}
