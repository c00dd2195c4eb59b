"""Rows of samples in the store: messages of queues of shardq's own, which no consumer receives.

A log takes the rows of a period and is dropped as a whole, as the logs of events are. So the rows are bounded and
nothing is removed row by row. There are fine logs and coarse logs.

The queues are sorted into groups by their names. All samples of a group at one moment are one message. Its due time,
more than a century ahead, says which group and which moment that is. So a reader of one queue reads the rows of its
group, within the time that it asks for, and no others.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

import msgspec

from shardq.base.clock import microseconds, to_datetime
from shardq.base.outgoing_message import OutgoingMessage
from shardq.base.shard import INTERNAL
from shardq.client import Client
from shardq.client.queue_internals import bodies_due
from shardq.core.settings import ONE_SHARD
from shardq.errors import InvalidSetting, QueueNotFound
from shardq.history.samples import TOTAL, Row, Sample

__all__ = ["COARSE", "FINE", "FOLDER", "Archive", "LogKind"]

FOLDER = f"{INTERNAL}history/"

_FAR = 2**52  # microseconds, 142 years
_GROUP = 2**42  # microseconds, 52 days: more than the period of a log
_GROUPS = (1, 4, 16, 64)
_QUEUES = 64  # of a group, on average


class LogKind(msgspec.Struct, frozen=True):
    """A kind of log: its name, and for how many seconds it takes rows, and is kept after that."""

    name: str
    period: int
    kept: int


FINE = LogKind("fine", 1_800, 3_600)
COARSE = LogKind("coarse", 21_600, 86_400)


class Log(msgspec.Struct, frozen=True, order=True):
    """A log. ``end`` is when the next one begins, in seconds since 1970."""

    end: int
    groups: int
    name: str

    def group_of(self, queue: str) -> int:
        """Return the group of a queue; 0 has all queues together."""
        return 0 if queue == TOTAL else 1 + zlib.crc32(queue.encode()) % self.groups


class Archive:
    """The logs of one store. Used by one thread at a time. Raises InvalidSetting."""

    def __init__(self, client: Client, folder: str = FOLDER) -> None:
        if not (folder.startswith(INTERNAL) and folder.endswith("/")):  # it drops the queues there
            raise InvalidSetting(
                f"folder={folder!r} may have queues of the application: give one that begins with {INTERNAL!r} and "
                "ends with '/'"
            )
        self._client, self._folder = client, folder
        self._current: dict[str, Log] = {}

    def append(self, kind: LogKind, row: Row, *, queues: int) -> None:
        """Store a row, in a log that suits this number of queues if it is the first of its period."""
        log = self._current.get(kind.name)
        try:
            if log is None or not self._covers(kind, log, row.at):
                log = self._begin(kind, row.at, queues)
            self._append(kind, log, row)
        except QueueNotFound:  # another client's clock is ahead, and it has dropped the log
            self._current.pop(kind.name, None)
            self._append(kind, self._begin(kind, row.at, queues), row)

    def begins(self, kind: LogKind, at: int) -> bool:
        """Return whether a row of that moment is the first that this client stores in its log."""
        log = self._current.get(kind.name)
        return log is None or not self._covers(kind, log, at)

    def rows(self, kind: LogKind, since: int, until: int, queues: Collection[str] | None = None) -> list[Row]:
        """Read the rows of a time, in order, with the samples of some queues; None: of all.

        All rows are there, also those without any of the queues. Rows that were stored twice come once.
        """
        found: dict[int, tuple[float, dict[str, Sample]]] = {}
        for log in self._logs(kind):
            if microseconds(log.end) > since and microseconds(log.end - kind.period) < until:
                groups = range(log.groups + 1) if queues is None else {0, *map(log.group_of, queues)}
                for row in self._read(kind, log, groups, since, until):
                    _, samples = found.setdefault(row.at, (row.seconds, {}))
                    samples.update(
                        {each.queue: each for each in row.samples if queues is None or each.queue in queues}
                    )
        return [Row(at, length, list(samples.values())) for at, (length, samples) in sorted(found.items())]

    def start_of(self, kind: LogKind, at: int) -> int:
        """Return when the log of a moment begins. Its first row has all queues."""
        return at - at % microseconds(kind.period)

    def drop(self, kind: LogKind, now: int) -> None:
        """Drop the logs that are kept no longer, and those of a clock that was far ahead."""
        for log in self._logs(kind):
            end = microseconds(log.end)
            if not now - microseconds(kind.kept) < end <= now + microseconds(2 * kind.period):
                with suppress(QueueNotFound):
                    self._client.delete_queue(log.name)

    def _covers(self, kind: LogKind, log: Log, at: int) -> bool:
        return microseconds(log.end - kind.period) <= at < microseconds(log.end)

    def _begin(self, kind: LogKind, at: int, queues: int) -> Log:
        """Open the log of a moment, which is made if no other client has made one; drop the old ones then."""
        logs = [log for log in self._logs(kind) if self._covers(kind, log, at)]
        if not logs:
            end = at // microseconds(kind.period) * kind.period + kind.period
            groups = next((each for each in _GROUPS if queues <= each * _QUEUES), _GROUPS[-1])
            log = Log(end, groups, f"{self._folder}{kind.name}/{end}-{groups}")
            self._client.create_queue(log.name, exist_ok=True, **ONE_SHARD)
            self.drop(kind, at)
            logs = [log]
        self._current[kind.name] = logs[0]
        return logs[0]

    def _append(self, kind: LogKind, log: Log, row: Row) -> None:
        groups: dict[int, list[Sample]] = {0: []}
        for each in row.samples:
            groups.setdefault(log.group_of(each.queue), []).append(each)
        messages = [
            OutgoingMessage(
                body=Row(row.at, row.seconds, samples).encode(),
                due=to_datetime(self._due(kind, log, group, row.at)),
            )
            for group, samples in groups.items()
        ]
        with self._client.queue(log.name).producer() as producer:
            producer.send_many(messages)

    def _read(self, kind: LogKind, log: Log, groups: Iterable[int], since: int, until: int) -> Iterator[Row]:
        start, end = microseconds(log.end - kind.period), microseconds(log.end)
        with suppress(QueueNotFound):  # it was dropped at this moment
            queue = self._client.queue(log.name)
            for group in groups:
                first = self._due(kind, log, group, max(since, start))
                last = self._due(kind, log, group, min(until, end))
                yield from filter(None, map(Row.decode, bodies_due(queue, first, last)))

    def _due(self, kind: LogKind, log: Log, group: int, at: int) -> int:
        return _FAR + group * _GROUP + at - microseconds(log.end - kind.period)

    def _logs(self, kind: LogKind) -> list[Log]:
        """List the logs of a kind, the oldest first."""
        folder, found = f"{self._folder}{kind.name}/", list[Log]()
        for name in self._client.queues(folder):
            end, _, groups = name.removeprefix(folder).partition("-")
            if end.isdigit() and groups.isdigit() and int(groups) in _GROUPS:
                found.append(Log(int(end), int(groups), name))
        return sorted(found)
