"""Cassandra does what a store has to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

cassandra_cluster = pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from cassandra import ReadFailure  # noqa: E402

from shardq.base.shard import Shard  # noqa: E402
from shardq.storage.cassandra.store import CassandraStore  # noqa: E402
from shardq.storage.cassandra.url import parse  # noqa: E402
from shardq.testing import RawEntry, RawQueue, RawState, StoreHarness  # noqa: E402
from shardq.testing.conformance import StoreConformance  # noqa: E402
from tests.cassandra.drops import LateDrops  # noqa: E402
from tools.audit.cassandra_rows import OUT, read_cassandra  # noqa: E402

LEASE, READY, BUNDLE, HISTORY = 1, 2, 3, 4
GROUP, BEHIND = 7, 8
KINDS = {
    0: "shard",
    1: "entry",
    2: "entry",
    3: "bundle",
    4: "history",
    5: "due row",
    6: "finished",
    7: "group",
    8: "behind",
}
ROWS = "SELECT kind, id, first, value FROM entry WHERE shard = %s"
RAISE_WATERMARKS = (
    "UPDATE entry SET value = %s "
    "WHERE shard = %s AND kind = 0 AND priority = 0 AND due = 0 AND id = 0x AND first = 0"
)
GRACE = 864_000  # seconds, what a table has when nobody says otherwise
UNLIST = f"UPDATE shard_directory SET leaving = {OUT} WHERE queue = %s AND time_shard = %s AND number = %s"


class CassandraHarness(StoreHarness):
    real_time = True
    time_scale = 0.05
    examples = 12

    def __init__(self, url: str) -> None:
        self.address = parse(url)
        # A server that was started just now may answer late.
        patience = {"connect_timeout": 60, "control_connection_timeout": 60}
        cluster = cassandra_cluster.Cluster(self.address.hosts, port=self.address.port, **patience)
        self.session = cluster.connect()
        self.idle = [CassandraStore(self.address)]
        self.clock = self.idle[0].clock  # two clients measure what may differ by more than a request takes
        self.empty = f"{self.address.keyspace}_empty"
        self.session.execute(f"DROP KEYSPACE IF EXISTS {self.empty}")
        self.incarnations: dict[str, str] = {}
        self.drops = LateDrops()

    def open(self) -> CassandraStore:
        return self.idle.pop() if self.idle else CassandraStore(self.address, clock=self.clock)

    def finish(self, store: Any) -> None:
        self.idle.append(store)  # connecting costs as much as most tests do

    def discard(self, store: Any, queues: Sequence[str]) -> None:
        self.drops.add(queues)

    def advance(self, seconds: float) -> None:
        time.sleep(seconds)

    def raw_entries(self, shard: Shard) -> list[RawEntry]:
        entries = []
        for kind, bundle_id, first, value in self._rows(ROWS, self._partition(shard)):
            fields = msgspec.msgpack.decode(value) if value else []
            match kind:
                case 1 | 2 if shard.is_grouped:
                    pass  # they follow from the group
                case 1:
                    state = RawState.HELD if fields[1] else RawState.WAITING
                    entries += [RawEntry(each[0], each[1], each[2], state) for each in fields[2]]
                case 2:
                    entries.append(RawEntry(bundle_id, first, fields[0], RawState.WAITING))
                case 7:
                    states = [RawState.HELD] * fields[2] + [RawState.WAITING] * len(fields[1])
                    entries += [
                        RawEntry(each[0], each[1], each[2], state)
                        for (each, *_), state in zip(fields[1], states, strict=False)
                    ]
                case 8:
                    entries += [RawEntry(each[0], each[1], each[2], RawState.WAITING) for each in fields]
                case 4:
                    entries.append(RawEntry(bundle_id, fields[1], fields[2], RawState.PROCESSED))
        return entries

    def raw_bundles(self, shard: Shard) -> int:
        rows = self._rows("SELECT kind, value, data FROM entry WHERE shard = %s", self._partition(shard))
        if shard.is_grouped:  # whose ready rows have copies
            return sum(kind == BUNDLE and value != b"" for kind, value, _ in rows)
        return sum((kind == BUNDLE and value != b"") or bool(data) for kind, value, data in rows)

    def raw_leftovers(self, queue: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for shard, kind, value in self._all_entries():
            if _queue_of(shard.rpartition(":")[0].rpartition(":")[0]) == queue:
                name = "finished" if kind == BUNDLE and value == b"" else KINDS[kind]
                found[name] = found.get(name, 0) + 1
        listed = [row for row in self._rows("SELECT queue, leaving FROM shard_directory") if row[1] != OUT]
        found["shard"] = sum(_queue_of(row[0]) == queue for row in listed)
        for name in ("dedupe", "consumer"):
            rows = self._rows(f"SELECT queue FROM {name}")
            found[name] = found.get(name, 0) + sum(_queue_of(row[0]) == queue for row in rows)
        return found

    def raw_queue(self, queue: str) -> RawQueue:
        return read_cassandra(self.session, self.address.keyspace, queue)

    def raw_mislead(self, shard: Shard) -> bool:
        """Raise every low watermark to the end of time; take the leases' due rows and the shard's listing away."""
        name = self._partition(shard)
        (late,) = [
            msgspec.msgpack.decode(value)[1] if value else 0
            for kind, _, _, value in self._rows(ROWS, name)
            if kind == 0
        ] or [0]
        ends = [[b"\xff" * 16, 2**31 - 1]] * 10
        self._rows(RAISE_WATERMARKS, msgspec.msgpack.encode([[2**61] * 12, late, ends]), name)
        self._rows("DELETE FROM entry WHERE shard = %s AND kind = 5 AND priority = 0", name)
        place = (name.partition(":")[0], shard.time_shard, shard.number)
        self._rows(UNLIST, *place)
        return True

    def open_empty(self) -> CassandraStore:
        self.session.execute(f"DROP KEYSPACE IF EXISTS {self.empty}", timeout=60)
        return CassandraStore(msgspec.structs.replace(self.address, keyspace=self.empty))

    def raw_newer_schema(self) -> bool:
        self.session.execute(
            f"UPDATE {self.empty}.schema_version SET version = 999 WHERE part = 'shardq' IF EXISTS"
        )
        return True

    def close(self) -> None:
        store = self.open()
        self.drops.end(store)
        self.finish(store)
        for store in self.idle:
            store.close()
        self.session.cluster.shutdown()

    def _partition(self, shard: Shard) -> str:
        """The shard's name in the tables, under the last incarnation of its queue that was seen."""
        for (incarnation,) in self._rows("SELECT incarnation FROM queue WHERE name = %s", shard.queue):
            self.incarnations[shard.queue] = str(incarnation)
        incarnation = self.incarnations.get(shard.queue, "")
        return f"{shard.queue.replace('@', '~')}@{incarnation}:{shard.time_shard}:{shard.number}"

    def _all_entries(self) -> list[tuple[Any, ...]]:
        """All rows of every shard, where the server refuses to cross all that tests have deleted too."""
        query = "SELECT shard, kind, value FROM entry"
        try:
            return self._rows(query)
        except ReadFailure:  # reads do not count tombstones that are past their grace
            grace = "ALTER TABLE entry WITH gc_grace_seconds = %s"
            self._rows(grace, 0)
            try:
                time.sleep(2)  # a moment of deletion is a whole second
                return self._rows(query)
            finally:
                self._rows(grace, GRACE)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        if self.session.keyspace != self.address.keyspace:  # asking for it is a request of its own
            self.session.set_keyspace(self.address.keyspace)
        return [tuple(row) for row in self.session.execute(query, values)]


def _queue_of(name: object) -> str:
    return str(name).partition("@")[0].replace("~", "@")


pytestmark = pytest.mark.server


@pytest.fixture(scope="session")
def harness(cassandra_url: str) -> Iterator[CassandraHarness]:
    harness = CassandraHarness(cassandra_url)
    yield harness
    harness.close()


class TestCassandra(StoreConformance):
    """Every contract, on Cassandra."""
