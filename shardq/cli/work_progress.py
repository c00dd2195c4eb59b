"""What one sees of workers."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shardq.worker import PoolReport

__all__ = ["Rate", "progress_line", "work_progress"]

WINDOW_SECONDS = 5.0


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


@contextmanager
def work_progress(queue: str) -> Iterator[Callable[[PoolReport], None]]:
    """A live line on stderr where that is a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and not needed without a terminal
    from rich.live import Live  # noqa: PLC0415

    rate = Rate()
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        yield lambda report: live.update(
            progress_line(queue, report, rate.update(time.monotonic(), report.total.worked)), refresh=True
        )


def progress_line(queue: str, report: PoolReport, rate: float) -> str:
    """Where the workers are, in one line."""
    total = report.total
    line = (
        f"{queue}: {report.processes} processes, {total.worked:,} worked, {rate:,.0f}/s, "
        f"{total.in_flight:,} in flight, {total.failed:,} failed, {total.dead_lettered:,} dead-lettered"
    )
    return f"{line}, {report.restarts} restarts" if report.restarts else line
