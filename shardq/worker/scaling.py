"""The number of processes of a pool: by the due messages of its queues, and the pace of its processes."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.base.log import Log
from shardq.base.patterns import is_pattern
from shardq.base.waits import BackgroundThread, Flag
from shardq.client import Client, connect
from shardq.core.settings import check_number
from shardq.errors import QueueNotFound, ShardqError

__all__ = [
    "COUNT_SECONDS",
    "DOWN_SECONDS",
    "UP_SECONDS",
    "DueMessages",
    "Processes",
    "Scaling",
    "bounds",
]

_log = Log(__name__)
COUNT_SECONDS = 10.0  # from one count of the queues to the next
UP_SECONDS = 20.0  # that too much is due before processes are added
DOWN_SECONDS = 60.0  # that nothing is due and a process is idle before one is retired
MAX_PROCESSES = 1_000


class DueMessages:
    """Counts due messages at an interval, in a thread: the store may be slow, or unreachable.

    A count asks for the shards of each queue, and for the counts of each shard. Messages of a queue whose deliveries
    are paused are not due.
    """

    def __init__(self, url: str, queues: Sequence[str], seconds: float) -> None:
        self._client = connect(url, retry_seconds=0)
        self._seconds = seconds
        self._queues = {name: self._client.pattern(name) if is_pattern(name) else None for name in queues}
        self._due: int | None = None
        self._over = Flag()
        self._thread = BackgroundThread("shardq-due-messages")

    def start(self) -> None:
        """Count from now on."""
        self._thread.run(self._run)

    def take(self) -> int | None:
        """Take the last count; None when there is none since it was taken."""
        due, self._due = self._due, None
        return due

    def close(self) -> None:
        """Count no more. A count that is under way ends automatically."""
        self._over.set()

    def _run(self) -> None:
        with self._client:
            while not self._over.wait(self._seconds):
                try:
                    self._due = self._count()
                except ShardqError as error:
                    _log.warning("due messages were not counted, so the pool stays as it is: %s", error)

    def _count(self) -> int:
        """Count the due messages of all queues.

        Missing queues are left out, as the workers do, unless all are missing.
        """
        counts: list[int] = []
        missing: QueueNotFound | None = None
        for name, pattern in self._queues.items():
            for queue in (name,) if pattern is None else pattern.names():
                try:
                    counts.append(_due(self._client, queue))
                except QueueNotFound as error:
                    missing = error
        if missing is not None and not counts:
            raise missing
        return sum(counts)


def _due(client: Client, name: str) -> int:
    queue = client.queue(name)
    return 0 if queue.settings.delivery_paused else queue.counts().ready


Processes = int | tuple[int, int]
"""How many processes a pool has, or the fewest and the most."""


class Scaling:
    """Decides how many processes a pool has, between two bounds.

    It makes no requests: the caller passes the time and the counts. More are due than the pool handles from one count
    to the next: it is behind. When it was for 20 seconds, half as many processes are added, one at least, and none
    beyond the number of due messages. Nothing is due and a process holds nothing: it is idle. When it was for 60
    seconds, one process is retired. Either begins anew after each change, and when a count finds it otherwise.

    >>> scaling = Scaling(1, 8)
    >>> [scaling.decide(now, due=100, handled=now, processes=2, idle=0) for now in (0, 10, 20)]
    [2, 2, 3]
    """

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most
        self._seen: tuple[float, int] | None = None  # the last count, and how many were handled until then
        self._behind_since: float | None = None
        self._idle_since: float | None = None

    def decide(self, now: float, *, due: int, handled: int, processes: int, idle: int) -> int:
        """Return how many processes there should be from now on.

        ``handled`` counts messages since the start. ``idle`` is how many of the ``processes`` hold no message.
        Processes that have ended on their own are not made up for.
        """
        done = self._done(now, handled)
        self._behind_since = _since(self._behind_since, now) if due > done else None
        self._idle_since = _since(self._idle_since, now) if due == 0 and idle > 0 else None
        wanted = processes
        if self._behind_since is not None and now - self._behind_since >= UP_SECONDS:
            wanted += min(due, max(1, processes // 2))
            self._behind_since = None
        elif self._idle_since is not None and now - self._idle_since >= DOWN_SECONDS:
            wanted -= 1
            self._idle_since = None
        return max(min(self.least, processes), min(self.most, wanted))

    def _done(self, now: float, handled: int) -> float:
        """Estimate how many messages the pool handles from one count to the next, at its pace since the last one."""
        before, self._seen = self._seen, (now, handled)
        if before is None or now <= before[0]:
            return 0.0
        return (handled - before[1]) * COUNT_SECONDS / (now - before[0])


def bounds(processes: Processes) -> tuple[int, int]:
    """Return the fewest and the most processes. Raises InvalidSetting."""
    least, most = (
        processes if isinstance(processes, tuple) and len(processes) == 2 else (processes, processes)
    )
    check_number("processes", least, 1, MAX_PROCESSES, whole=True)
    check_number("processes", most, least, MAX_PROCESSES, whole=True)
    return least, most


def _since(moment: float | None, now: float) -> float:
    return now if moment is None else moment
