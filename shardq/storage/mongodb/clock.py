"""How far the primary's clock is ahead."""

from __future__ import annotations

import calendar

from shardq.storage.elapsed import uptime
from shardq.storage.mongodb.session import Session

__all__ = ["leads"]

_SAMPLES = 8


def leads(session: Session) -> tuple[int]:
    """Ask by how many microseconds the primary's clock is ahead of this machine's uptime.

    The server tells whole milliseconds, rounded down. Each answer bounds the difference of the clocks from below; the
    highest bound of eight counts, so nothing is due here before it is there.
    """
    return (max(_sample(session) for _ in range(_SAMPLES)),)


def _sample(session: Session) -> int:
    with session.translated(writing=False):
        answer = session.database.command("hello")["localTime"]
    after = uptime()
    return calendar.timegm(answer.timetuple()) * 1_000_000 + int(answer.microsecond) - after
