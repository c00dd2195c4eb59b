"""One read of some shards, without a body being read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from shardq.base.shard import Shard
from shardq.errors import ShardqError
from shardq.storage.cassandra import read_cursors
from shardq.storage.cassandra.changing import Change
from shardq.storage.cassandra.faults import TombstonesRefused
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.read_cursors import ReadCursors
from shardq.storage.cassandra.rows import (
    DUE_INDEX,
    DUE_WATERMARK,
    HISTORY,
    LEASE,
    READY,
    Control,
    ControlRow,
    CursorPosition,
    control_row,
)
from shardq.storage.cassandra.scanning import FIRST, FOREVER, Position, scan
from shardq.storage.cassandra.session import Answer, Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.read_cursors import PRIORITIES
from shardq.storage.requests import Probe

__all__ = [
    "SOON",
    "Found",
    "ShardProbes",
    "ask_controls",
    "ask_delayed",
    "ask_held",
    "ask_history",
    "ask_ready",
]

SOON = 100_000  # clocks agree within this; messages due so soon are answered as ones ahead
_AHEAD = 60_000_000  # a lease that ends later is not looked for: the due rows of leases that were not used up lie there
_MOST_READY = 4  # ready rows of a shard that are read
_MOST_DUE_ROWS = 20  # of a shard; this number of lapsed lease rows is read
_STEP = 1_000_000  # starts so close together are read as one

_Offer: TypeAlias = tuple[int, int]  # priority, due

_Rows: TypeAlias = Iterable[tuple[Any, ...]]

CQL_CONTROLS = (
    "SELECT shard, value, taken, WRITETIME(taken), turn, WRITETIME(turn) FROM entry "
    "WHERE shard IN ? AND kind = 0 AND priority = 0 AND due = 0 AND id = 0x AND first = 0"
)
CQL_READY_ROWS = (
    "SELECT shard, priority, due, id, first FROM entry WHERE shard IN ? AND kind = 2 AND priority IN ? "
    "AND due >= ? AND due <= ? PER PARTITION LIMIT ?"
)
_DUE_ROWS = (
    "SELECT shard, priority, due, id, first FROM entry WHERE shard IN ? AND kind = 5 AND priority = 0 "
    "AND due >= ? AND due <= ? PER PARTITION LIMIT ?"
)
_DELAYED = (
    "SELECT shard, priority, due, id, first FROM entry WHERE shard IN ? AND kind = 5 AND priority = 1 "
    "AND due > ? PER PARTITION LIMIT 1"
)
_HISTORY = (
    "SELECT shard, due FROM entry WHERE shard IN ? AND kind = 4 AND priority = 0 AND due < ? "
    "PER PARTITION LIMIT 1"
)
CQL_HELD = (
    "SELECT shard, kind, due, id, first FROM entry WHERE shard IN ? AND kind IN (1, 5) AND priority = 0"
)


class Found(msgspec.Struct):
    """The result of a read of one shard."""

    control: ControlRow = ControlRow()
    watermarks: Control = Control()  # those that are believed
    ready: list[tuple[int, CursorPosition]] = msgspec.field(default_factory=list)  # with their priorities
    due_rows: list[tuple[int, bytes, int]] = msgspec.field(default_factory=list)  # due, id, number
    delayed: list[int] = msgspec.field(default_factory=list)
    leases: list[LeaseRow] = msgspec.field(default_factory=list)  # that were read


class ShardProbes:
    """A full probe from the low watermarks, or a glance from where nothing was found before."""

    def __init__(
        self,
        session: Session,
        cursors: ReadCursors,
        shards: Sequence[Shard],
        now: int,
        *,
        glance: bool = False,
    ) -> None:
        self._session, self._cursors, self._now, self._glance = session, cursors, now, glance
        self._shards = {str(shard): shard for shard in shards}
        self._found = {name: Found() for name in self._shards}
        self._names = list(self._shards)
        self._controls: Answer | None = None
        self._ready: list[Answer] = []
        self._due_rows: Answer | None = None
        self._delayed: Answer | None = None

    def ask_controls(self) -> None:
        """Ask for the low watermarks, which have to be known before anything is read from there."""
        if not self._glance:
            self._controls = ask_controls(self._session, self._names)

    def ask(self) -> None:
        """Ask for everything else."""
        if not self._glance:
            self._learn_watermarks()
        until = self._now + SOON
        for start, priorities in self._starts():
            self._ready.append(ask_ready(self._session, self._names, priorities, start, until, _MOST_READY))
        if not self._glance:
            watermark = min(found.watermarks.watermarks[DUE_WATERMARK] for found in self._found.values())
            self._due_rows = ask_due_rows(
                self._session, self._names, watermark, self._now + _AHEAD, _MOST_DUE_ROWS
            )
            self._delayed = ask_delayed(self._session, self._names, self._now)

    def collect(self) -> None:
        """Wait for the answers. The requests began at the lowest of the shards' low watermarks."""
        for name, priority, *place in (row for answer in self._ready for row in answer()):
            if self._glance or tuple(place) >= self._found[name].watermarks.places[priority]:
                self._found[name].ready.append((priority, tuple(place)))
        for name, _, due, row_id, number in self._due_rows() if self._due_rows else ():
            if due >= self._found[name].watermarks.watermarks[DUE_WATERMARK]:
                self._found[name].due_rows.append((due, row_id, number))
        self._collect_delayed()
        for name, found in self._found.items():
            if not self._glance and not found.ready:
                self._nothing_ready(name, found)

    def probes(self) -> Iterator[Probe]:
        """Yield the results, shard by shard."""
        for name, shard in self._shards.items():
            found = self._found[name]
            if not (found.ready or found.due_rows or found.delayed or found.leases):
                yield Probe(shard)
                continue
            offers = [(priority, place[0]) for priority, place in found.ready]
            offers += self._lapsed(name, found)
            ahead = [due for _, due in offers if due > self._now]
            ahead += [due for due, _, _ in found.due_rows if due > self._now] + found.delayed
            first = min((offer for offer in offers if offer[1] <= self._now), default=(None, None))
            yield Probe(shard, first[0], first[1], min(ahead, default=None))

    def _learn_watermarks(self) -> None:
        for name, *row in self._controls() if self._controls else ():
            self._found[name].control = control_row(*row)
        for name, found in self._found.items():
            found.watermarks = read_cursors.believed(found.control.control, self._now)
            self._cursors.of(name).watermarks = found.watermarks.places

    def _starts(self) -> Iterable[tuple[int, list[int]]]:
        """Return the earliest places of the shards to read from, with the priorities that are read from there."""
        starts = [
            self._cursors.of(name).starts() if self._glance else found.watermarks.watermarks
            for name, found in self._found.items()
        ]
        groups: dict[int, tuple[int, list[int]]] = {}
        for priority, start in zip(PRIORITIES, map(min, zip(*starts, strict=False)), strict=False):
            least, members = groups.get(start // _STEP, (start, []))
            groups[start // _STEP] = min(least, start), [*members, priority]
        return groups.values()

    def _collect_delayed(self) -> None:
        for name, _, due, *_ in self._delayed() if self._delayed else ():
            self._found[name].delayed.append(due)

    def _lapsed(self, name: str, found: Found) -> Iterator[_Offer]:
        lapsed = [row_id for due, row_id, _ in found.due_rows if due <= self._now][:_MOST_DUE_ROWS]
        leases = WideRow(self._session, name).leases(lapsed) if lapsed else []
        for lease in (*leases, *found.leases):
            if lease.due <= self._now:
                yield from ((each.priority, lease.due_of(each)) for each in lease.slices)

    def _nothing_ready(self, name: str, found: Found) -> None:
        self._cursors.of(name).quiet_at = self._now
        first_due = min((due for due, _, _ in found.due_rows), default=self._now)
        raised = read_cursors.worth_raising(found.control, first_due, self._now)
        if raised is None:
            return
        change = Change(self._session, self._shards[name])
        change.set_control(raised, found.control.seen)
        with suppress(ShardqError):  # it only would have spared others some reading
            change.apply()


def ask_controls(session: Session, shards: Sequence[str]) -> Answer:
    """Ask for shard and columns of the control row of each shard."""
    return session.start_read(CQL_CONTROLS, (shards,))


def ask_ready(
    session: Session, shards: Sequence[str], priorities: Sequence[int], since: int, until: int, limit: int
) -> Answer:
    """Ask for shard and position of the first ready rows of each shard that are due between two moments."""

    def alone(shard: str) -> _Rows:
        ranges = [
            ((priority, since, b"", FIRST), (priority, until + 1, b"", FIRST)) for priority in priorities
        ]
        rows = (row for start, end in ranges for row in scan(session, shard, READY, start, end))
        return islice(rows, limit)

    return _ask(session, CQL_READY_ROWS, (shards, priorities, since, until, limit), alone)


def ask_due_rows(session: Session, shards: Sequence[str], since: int, until: int, limit: int) -> Answer:
    """Ask for shard and position of the first due rows of leases of each shard between two moments."""

    def alone(shard: str) -> _Rows:
        rows = scan(session, shard, DUE_INDEX, (0, since, b"", FIRST), (0, until + 1, b"", FIRST))
        return islice(rows, limit)

    return _ask(session, _DUE_ROWS, (shards, since, until, limit), alone)


def ask_delayed(session: Session, shards: Sequence[str], since: int) -> Answer:
    """Ask for shard and position of the first due row of a delayed bundle of each shard after a moment."""

    def alone(shard: str) -> _Rows:
        return islice(
            scan(session, shard, DUE_INDEX, (1, since + 1, b"", FIRST), (1, FOREVER, b"", FIRST)), 1
        )

    return _ask(session, _DELAYED, (shards, since), alone)


def ask_held(session: Session, shards: Sequence[str]) -> Answer:
    """Ask for shard, kind, due, id and number of every lease row and of every due row of one."""

    def alone(shard: str) -> _Rows:
        end: Position = (1, -FOREVER, b"", FIRST)
        for kind in (LEASE, DUE_INDEX):
            for _, *row in scan(session, shard, kind, (0, -FOREVER, b"", FIRST), end):
                yield (kind, *row)

    return _ask(session, CQL_HELD, (shards,), alone)


def ask_history(session: Session, shards: Sequence[str], before: int) -> Answer:
    """Ask for shard and moment of the oldest message of each shard that was processed before a moment."""

    def alone(shard: str) -> _Rows:
        start, end = (0, -FOREVER, b"", FIRST), (0, before, b"", FIRST)
        return islice(((due,) for _, due, *_ in scan(session, shard, HISTORY, start, end)), 1)

    return _ask(session, _HISTORY, (shards, before), alone)


def _ask(session: Session, query: str, values: tuple[Any, ...], alone: Callable[[str], _Rows]) -> Answer:
    """Send a query of many shards; where the server refuses it for its tombstones, each shard is read alone."""
    asked = session.start_read(query, values)

    def rows() -> _Rows:
        try:
            return list(asked())
        except TombstonesRefused:
            return [(shard, *row) for shard in values[0] for row in alone(shard)]

    return rows
