"""What one sees of workers."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shardq.cli.printing import many, note
from shardq.worker import PoolReport

__all__ = ["Progress", "Rate", "progress_line", "work_progress"]

WINDOW_SECONDS = 5.0
LINES_AT_FIRST_SECONDS = 1.0
LINES_LATER_SECONDS = 30.0


class Rate:
    """How fast a number grows, over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, moment: float, number: int) -> float:
        """Take note of a number, and return its growth per second."""
        self._seen.append((moment, number))
        while len(self._seen) > 2 and self._seen[0][0] < moment - WINDOW_SECONDS:
            self._seen.popleft()
        then, before = self._seen[0]
        return (number - before) / (moment - then) if moment > then else 0.0


class Progress:
    """Whole lines, when something has changed: after a second, then more and more rarely, up to half a minute.

    Handlers write to the same terminal, in processes of their own: a line that is drawn again in its place would be
    mixed with what they write.
    """

    def __init__(self, queue: str, show: Callable[[str], None]) -> None:
        self._queue, self._show = queue, show
        self._rate = Rate()
        self._pause = LINES_AT_FIRST_SECONDS
        self._due: float | None = None
        self._shown = ""
        self._told = False

    def update(self, moment: float, report: PoolReport) -> None:
        """Take note of a report at a moment in seconds, and show it when it is time."""
        rate = self._rate.update(moment, report.total.worked)
        if report.stops and not self._told:
            self._told = True
            held = many(report.total.in_flight, "message")
            self._show(
                f"{self._queue}: ends after those at hand, {held} in flight; Ctrl-C again ends it at once"
            )
        if self._due is None:
            self._due = moment + self._pause
        facts = progress_line(self._queue, report, 0.0)
        if moment < self._due or facts == self._shown:
            return
        self._show(progress_line(self._queue, report, rate))
        self._pause = min(2 * self._pause, LINES_LATER_SECONDS)
        self._due, self._shown = moment + self._pause, facts


@contextmanager
def work_progress(queue: str) -> Iterator[Callable[[PoolReport], None]]:
    """Lines on stderr where that is a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    progress = Progress(queue, note)
    yield lambda report: progress.update(time.monotonic(), report)


def progress_line(queue: str, report: PoolReport, rate: float) -> str:
    """Where the workers are, in one line."""
    total = report.total
    line = (
        f"{queue}: {many(report.processes, 'process')}, {total.worked:,} worked, {rate:,.0f}/s, "
        f"{total.in_flight:,} in flight, {total.failed:,} failed, {total.dead_lettered:,} dead-lettered"
    )
    return f"{line}, {many(report.restarts, 'restart')}" if report.restarts else line
