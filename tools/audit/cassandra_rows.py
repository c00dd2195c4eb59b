"""The rows of a queue in a Cassandra keyspace."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import msgspec

from shardq.base.shard import Shard
from shardq.testing import RawEntry, RawQueue, RawState

__all__ = ["OUT", "read_cassandra"]

_CONTROL, _LEASE, _READY, _BUNDLE, _HISTORY, _DUE_INDEX, _MOVE, _GROUP, _BEHIND = range(9)
_PARTITIONS = "SELECT DISTINCT shard FROM {}.entry"
_ROWS = "SELECT kind, priority, due, id, first, value, tally, data FROM {}.entry WHERE shard = %s"
_LISTED = "SELECT time_shard, number, leaving FROM {}.shard_directory WHERE queue = %s"
OUT = -1
"""What stands as ``leaving`` of a shard that was taken out of the directory. It is written here again, as the kinds of
rows are: an audit takes nothing from the code that it checks."""
_QUEUE = "SELECT incarnation FROM {}.queue WHERE name = %s"
_decode = msgspec.msgpack.decode


def read_cassandra(session: Any, keyspace: str, queue: str) -> RawQueue:
    """Read everything of the queue, by the names of the partitions. Nobody may be at work meanwhile.

    What is stored under another incarnation than that of the queue's record is stray. The driver's session decides on
    the consistency.
    """

    def ask(query: str, *values: object) -> list[Any]:
        return list(session.execute(query.format(keyspace), values or None))

    plain = queue.replace("@", "~")
    pattern = re.compile(rf"({re.escape(plain)}(?:@\w+)?):(\d+):(\d+)")
    found = _Partitions()
    names = {f"{plain}@{incarnation}" if incarnation else plain for (incarnation,) in ask(_QUEUE, queue)}
    for (partition,) in ask(_PARTITIONS):
        if place := pattern.fullmatch(partition):
            rows = ask(_ROWS, partition)
            content = [row for row in rows if row[0] != _CONTROL]
            if place[1] in names:
                found.add(Shard(queue, int(place[2]), int(place[3])), rows)
            elif content:
                found.strays.append(f"{len(content)} rows in {partition} of no queue")
    known = [row for name in names for row in ask(_LISTED, name)]
    listed = frozenset(Shard(queue, *place) for *place, leaving in known if leaving != OUT)
    return RawQueue(found.entries, found.bodies, listed, found.strays)


class _Partitions:
    """What was found so far."""

    def __init__(self) -> None:
        self.entries: dict[Shard, list[RawEntry]] = defaultdict(list)
        self.bodies: dict[Shard, list[bytes]] = defaultdict(list)
        self.strays: list[str] = []

    def add(self, shard: Shard, rows: list[Any]) -> None:
        """Add the rows of a partition."""
        rows = [row for row in rows if row[0] != _BUNDLE or row[5] != b""]  # which tells of a finished one
        if shard.is_grouped:
            self._groups(shard, [row for row in rows if row[0] in (_GROUP, _BEHIND)])
            self._compare_indexes(shard, rows)
            rows = [row for row in rows if row[0] in (_BUNDLE, _HISTORY)]
        due_rows: set[tuple[int, bytes, int]] = set()  # those of lease rows: due, token, number
        leases: set[tuple[int, bytes, int]] = set()
        for kind, priority, due, row_id, first, value, _, data in rows:
            fields = _decode(value) if value else []
            if kind == _LEASE:
                leases.add((fields[0], row_id, first))
                self._lease(shard, fields, data)
            elif kind == _READY:
                self.entries[shard].append(RawEntry(row_id, first, fields[0], RawState.WAITING))
                self.bodies[shard] += [row_id] if data is not None else []
            elif kind == _BUNDLE:
                self.bodies[shard].append(row_id)
            elif kind == _HISTORY:
                self.entries[shard].append(RawEntry(row_id, fields[1], fields[2], RawState.PROCESSED))
            elif kind == _DUE_INDEX and priority == 0:
                due_rows.add((due, row_id, first))
        self._name(shard, "lease rows without a due row", leases - due_rows)
        self._name(shard, "due rows without a lease row", due_rows - leases)
        sent = {row[3] for row in rows if row[0] == _DUE_INDEX and row[1] == 1}
        self._name(shard, "due rows without a bundle", sent - set(self.bodies[shard]))

    def _groups(self, shard: Shard, rows: list[Any]) -> None:
        """Add the messages of groups; what is behind a group is counted by it."""
        behind: dict[bytes, int] = {}
        counted: dict[bytes, int] = {}
        for kind, _, _, row_id, _, value, _, _ in rows:
            fields = _decode(value)
            if kind == _GROUP:
                states = [RawState.HELD] * fields[2] + [RawState.WAITING] * len(fields[1])
                members = [each for each, *_ in fields[1]]
                counted |= {row_id: fields[8]} if fields[8] else {}
            else:
                states, members = [RawState.WAITING] * len(fields), fields
                behind[row_id[:16]] = behind.get(row_id[:16], 0) + 1
            self.entries[shard] += [
                RawEntry(each[0], each[1], each[2], state)
                for each, state in zip(members, states, strict=False)
            ]
        if behind != counted:
            self.strays.append(f"{behind} rows behind groups in {shard}, which count {counted}")

    def _compare_indexes(self, shard: Shard, rows: list[Any]) -> None:
        """Every group is found by its first slice, and by nothing else."""
        indexes = {tuple(row[:5]) for row in rows if row[0] in (_LEASE, _READY, _DUE_INDEX)}
        for row in rows:
            if row[0] == _LEASE:
                until, _, _, ids, *_ = _decode(row[5])
                names = [ids[start : start + 16] for start in range(0, len(ids), 16)]
                indexes |= {(_LEASE, row[3], row[4], until, name) for name in names}
        expected: set[tuple[Any, ...]] = set()
        for row in rows:
            if row[0] != _GROUP:
                continue
            _, members, held, token, number, ready_at, *_ = _decode(row[5])
            (bundle_id, first, _, _, priority, *_), due, _ = members[0]
            if held:
                expected |= {(_LEASE, 0, 0, token, number), (_DUE_INDEX, 0, due, token, number)}
                expected |= {(_LEASE, token, number, due, row[3])}
            else:
                expected |= {(_READY, priority, ready_at, bundle_id, first)}
                expected |= {(_DUE_INDEX, 1, due, bundle_id, 0)} if due == ready_at else set()
        self._name(shard, "index rows of no group", indexes - expected)
        self._name(shard, "index rows of groups are missing, that is", expected - indexes)

    def _lease(self, shard: Shard, fields: list[Any], data: bytes | None) -> None:
        state = RawState.HELD if fields[1] else RawState.WAITING
        slices = [RawEntry(each[0], each[1], each[2], state) for each in fields[2]]
        self.entries[shard] += slices
        used = {each.bundle_id for each in slices}  # a lease row may carry some that are finished
        self.bodies[shard] += [each for each in _decode(data) if each in used] if data else []

    def _name(self, shard: Shard, what: str, rows: set[Any]) -> None:
        if rows:
            self.strays.append(f"{len(rows)} {what} in {shard}")
