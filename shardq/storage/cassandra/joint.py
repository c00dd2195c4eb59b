"""Reading the same of several shards in one request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from shardq.storage.cassandra.faults import TombstonesRefused
from shardq.storage.cassandra.rows import ALARM, HOLDING, READY
from shardq.storage.cassandra.scanning import FIRST, FOREVER, Position, scan
from shardq.storage.cassandra.session import Answer, Session

__all__ = ["ask_alarms", "ask_controls", "ask_delayed", "ask_held", "ask_ready"]

_Rows: TypeAlias = Iterable[tuple[Any, ...]]

_CONTROLS = (
    "SELECT shard, value, taken, WRITETIME(taken), turn, WRITETIME(turn) FROM entry "
    "WHERE shard IN ? AND kind = 0 AND priority = 0 AND due = 0 AND id = 0x AND first = 0"
)
_READY = (
    "SELECT shard, priority, due, id, first FROM entry WHERE shard IN ? AND kind = 2 AND priority IN ? "
    "AND due >= ? AND due <= ? PER PARTITION LIMIT ?"
)
_ALARMS = (
    "SELECT shard, priority, due, id, first FROM entry WHERE shard IN ? AND kind = 5 AND priority = 0 "
    "AND due >= ? AND due <= ? PER PARTITION LIMIT ?"
)
_DELAYED = (
    "SELECT shard, priority, due, id, first FROM entry WHERE shard IN ? AND kind = 5 AND priority = 1 "
    "AND due > ? PER PARTITION LIMIT 1"
)
_HELD = "SELECT shard, kind, due, id, first FROM entry WHERE shard IN ? AND kind IN (1, 5) AND priority = 0"


def ask_controls(session: Session, shards: Sequence[str]) -> Answer:
    """Ask for shard and columns of the control row of each shard."""
    return session.start_read(_CONTROLS, (shards,))


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

    return _ask(session, _READY, (shards, priorities, since, until, limit), alone)


def ask_alarms(session: Session, shards: Sequence[str], since: int, until: int, limit: int) -> Answer:
    """Ask for shard and position of the first alarms of holdings of each shard between two moments."""

    def alone(shard: str) -> _Rows:
        rows = scan(session, shard, ALARM, (0, since, b"", FIRST), (0, until + 1, b"", FIRST))
        return islice(rows, limit)

    return _ask(session, _ALARMS, (shards, since, until, limit), alone)


def ask_delayed(session: Session, shards: Sequence[str], since: int) -> Answer:
    """Ask for shard and position of the first alarm of a delayed bundle of each shard after a moment."""

    def alone(shard: str) -> _Rows:
        return islice(scan(session, shard, ALARM, (1, since + 1, b"", FIRST), (1, FOREVER, b"", FIRST)), 1)

    return _ask(session, _DELAYED, (shards, since), alone)


def ask_held(session: Session, shards: Sequence[str]) -> Answer:
    """Ask for shard, kind, due, id and number of every holding and of every alarm of one."""

    def alone(shard: str) -> _Rows:
        end: Position = (1, -FOREVER, b"", FIRST)
        for kind in (HOLDING, ALARM):
            for _, *row in scan(session, shard, kind, (0, -FOREVER, b"", FIRST), end):
                yield (kind, *row)

    return _ask(session, _HELD, (shards,), alone)


def _ask(session: Session, query: str, values: tuple[Any, ...], alone: Callable[[str], _Rows]) -> Answer:
    """Send a query of many shards; where the server refuses it for its tombstones, each shard is read alone."""
    asked = session.start_read(query, values)

    def rows() -> _Rows:
        try:
            return list(asked())
        except TombstonesRefused:
            return [(shard, *row) for shard in values[0] for row in alone(shard)]

    return rows
