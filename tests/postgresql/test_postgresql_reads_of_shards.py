"""What reads of many shards find them by, in a queue of many shards beside many queues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq.base.shard import Shard
from shardq.storage.postgresql.store import PostgresStore
from tests.postgresql.test_postgresql_reads import World, world

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


@pytest.mark.parametrize("probe", PROBES, ids=["probe", "deep probe"])
def test_each_shard_is_read_once(world: World, probe: Callable[[PostgresStore, list[Shard]], object]) -> None:
    if len(world.store.shards(world.queue)) < MANY:
        for statement in FILL.split(";"):
            world.run(statement, {"many": MANY, "queue": world.queue})
        world.run("ANALYZE")
    world.plans.scans.clear()
    probe(world.store, [Shard(world.queue, 101 + number, 0) for number in range(ASKED)])
    rows = [scan.rows for scan in world.plans.scans if scan.table == "shard"]
    assert rows, "the server reports what it reads"
    assert max(rows) <= ASKED
