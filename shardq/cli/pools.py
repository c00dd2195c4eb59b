"""Parts of the commands that run a pool: its health and metrics, and its report in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shardq.cli.printing import many, tell
from shardq.cli.queue_history import history_option, keeping_history
from shardq.cli.times import in_words
from shardq.errors import ShardqError
from shardq.metrics.monitor import Monitor, MonitorOptions, PoolState
from shardq.worker import JsonLog, PoolReport, WorkerPool

__all__ = ["beating", "monitor_options", "run_pool", "summary", "taken_from"]

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


def taken_from(options: dict[str, Any]) -> MonitorOptions:
    """Take them out of the options of a command. Raises InvalidSetting."""
    return MonitorOptions(**{name: options.pop(name) for name in MonitorOptions.__struct_fields__})


def beating(monitor: Monitor, progress: Callable[[PoolReport], None]) -> Callable[[PoolReport], None]:
    """Return what a pool calls in each turn of its loop: the monitor, and what shows the progress."""

    def turned(report: PoolReport) -> None:
        monitor.beat(
            PoolState(report.processes, report.restarts, report.total.in_flight, stopping=report.stops > 0)
        )
        progress(report)

    return turned


def run_pool(
    pool: WorkerPool, monitor: Monitor, log: JsonLog | None, *, history: str | None = None
) -> PoolReport:
    """Print the work of a pool, and run it. An error is raised after its summary, unless it did nothing.

    The history of the store of the URL ``history`` is kept meanwhile.
    """
    tell(f"working on {pool.description}; Ctrl-C ends after those at hand", log)
    monitor.measures = pool.measures
    try:
        with keeping_history(history, measures=pool.measures):
            return pool.run()
    except ShardqError:
        if pool.report.total.batches:
            tell(summary(pool.report), log)
        raise


def summary(report: PoolReport) -> str:
    """Summarize the work of a pool in one line."""
    total = report.total
    parts = [f"{many(total.worked, 'message')} worked in {in_words(report.seconds)}"]
    facts = {
        "failed": total.failed,
        "dead-lettered": total.dead_lettered,
        "snoozed": total.snoozed,
        "discarded": total.discarded,
        "given back": total.given_back,
        "lost their lease": total.lease_lost,
    }
    parts += [f"{number:,} {what}" for what, number in facts.items() if number]
    if report.restarts:
        parts.append(many(report.restarts, "restart"))
    if total.last_failure:
        parts.append(f"last failure: {total.last_failure}")
    return ", ".join(parts)
