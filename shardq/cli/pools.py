"""Running the pool of a command, with its progress, health, metrics and history; and its report in one line."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from shardq.cli.printing import many, note, note_or_log
from shardq.cli.queue_history import history_option, keeping_history
from shardq.cli.times import in_words
from shardq.errors import ShardqError
from shardq.metrics.monitor import Monitor, MonitorOptions, PoolState
from shardq.worker import JsonLog, PoolReport, WorkerPool

__all__ = ["check_ended", "monitor_options", "run_pool", "summary"]

WINDOW_SECONDS = 5.0
LINES_AT_FIRST_SECONDS = 1.0
LINES_LATER_SECONDS = 30.0

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="Serve /metrics for Prometheus: one page for all processes.",
    ),
    click.option("--health-port", type=int, metavar="PORT", help="Serve /livez and /readyz for probes."),
    click.option(
        "--bind",
        "host",
        metavar="ADDRESS",
        default=MonitorOptions().host,
        show_default=True,
        help="The address of these ports; 0.0.0.0 for other machines, too.",
    ),
    click.option(
        "--heartbeat-file",
        metavar="FILE",
        help="Touch this file every second while the loop of the pool runs.",
    ),
    history_option,
)


def monitor_options(command: F) -> F:
    """Give a command the options of a :class:`MonitorOptions`, and that of the history."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_pool(make: Callable[..., WorkerPool], url: str, title: str, options: dict[str, Any]) -> PoolReport:
    """Make a pool with the options of a command, print its work, and run it.

    Takes the :func:`monitor_options` out of the options. Shows the progress under the title, serves health and metrics,
    and keeps the history of the store meanwhile. An error is raised after the summary of the pool, unless it did
    nothing. Raises InvalidSetting.
    """
    monitoring = MonitorOptions(**{name: options.pop(name) for name in MonitorOptions.__struct_fields__})
    history = url if options.pop("keeps_history") else None
    measured = history is not None or monitoring.metrics_port is not None
    log: JsonLog | None = options["log"]
    with _progress(title, log) as progress, Monitor(url, monitoring) as monitor:

        def show_progress(report: PoolReport) -> None:
            monitor.beat(
                PoolState(
                    report.processes, report.restarts, report.total.in_flight, stopping=report.stops > 0
                )
            )
            progress(report)

        pool = make(on_progress=show_progress, measured=measured, **options)
        note_or_log(f"working on {pool.description}; Ctrl-C ends after those at hand", log)
        monitor.measures = pool.measures
        try:
            with keeping_history(history, measures=pool.measures):
                return pool.run()
        except ShardqError:
            if pool.report.total.batches:
                note_or_log(summary(pool.report), log)
            raise


def check_ended(report: PoolReport) -> None:
    """Raise KeyboardInterrupt if a second Ctrl-C or SIGTERM has ended the pool at once."""
    if report.stops > 1:
        left = many(report.left_in_flight, "message")
        raise KeyboardInterrupt(
            f"ended at once with {left} in flight: delivered again when the lease expires"
        )


def summary(report: PoolReport) -> str:
    """Summarize the work of a pool in one line."""
    total = report.total
    parts = [f"{many(total.worked, 'message')} worked in {in_words(report.seconds)}"]
    facts = {
        "failed": total.failed,
        "dead-lettered": total.dead_lettered,
        "snoozed": total.snoozed,
        "discarded": total.discarded,
        "returned": total.returned,
        "lost their lease": total.lease_lost,
    }
    parts += [f"{number:,} {what}" for what, number in facts.items() if number]
    if report.restarts:
        parts.append(many(report.restarts, "restart"))
    if total.last_failure:
        parts.append(f"last failure: {total.last_failure}")
    return ", ".join(parts)


class Rate:
    """The growth of a number over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, moment: float, number: int) -> float:
        """Take note of a number and return its growth per second."""
        self._seen.append((moment, number))
        while len(self._seen) > 2 and self._seen[0][0] < moment - WINDOW_SECONDS:
            self._seen.popleft()
        then, before = self._seen[0]
        return (number - before) / (moment - then) if moment > then else 0.0


class Progress:
    """Shows progress in whole lines, if it changed: after a second, then less and less often, up to half a minute.

    Handlers write to the same terminal from other processes. A line that is redrawn in place would mix with theirs.
    """

    def __init__(self, queue: str, show: Callable[[str], None]) -> None:
        self._queue, self._show = queue, show
        self._rate = Rate()
        self._pause = LINES_AT_FIRST_SECONDS
        self._due: float | None = None
        self._shown = ""
        self._noted = False

    def update(self, moment: float, report: PoolReport) -> None:
        """Take note of a report at a moment in seconds, and show it when it is time."""
        rate = self._rate.update(moment, report.total.worked)
        if report.stops and not self._noted:
            self._noted = True
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
def _progress(title: str, log: JsonLog | None) -> Iterator[Callable[[PoolReport], None]]:
    """Show progress on stderr, if stderr is a terminal and no log for programs is written to it."""
    if log is not None or not sys.stderr.isatty():
        yield lambda _: None
        return
    progress = Progress(title, note)
    yield lambda report: progress.update(time.monotonic(), report)


def progress_line(queue: str, report: PoolReport, rate: float) -> str:
    """Write the progress of the workers in one line."""
    total = report.total
    line = (
        f"{queue}: {many(report.processes, 'process')}, {total.worked:,} worked, {rate:,.0f}/s, "
        f"{total.in_flight:,} in flight, {total.failed:,} failed, {total.dead_lettered:,} dead-lettered"
    )
    return f"{line}, {many(report.restarts, 'restart')}" if report.restarts else line
