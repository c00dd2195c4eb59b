"""``shardq work``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from shardq.cli.duration import duration, in_words
from shardq.cli.example import ExampleCommand
from shardq.cli.options import codec_option, json_option, queue_argument
from shardq.cli.printing import many, note, print_json
from shardq.cli.session import Session
from shardq.cli.work_progress import work_progress
from shardq.worker import PoolReport, ShellCommand, WorkerPool

__all__ = ["summary", "work"]


@click.command(cls=ExampleCommand, example="shardq work orders --handler shop.orders:charge --processes 4")
@queue_argument
@click.option("--handler", metavar="MODULE:FUNCTION", help="Called with each message.")
@click.option(
    "--exec", "command", metavar="COMMAND", help="Run by the shell for each message, its body on stdin."
)
@click.option("--processes", "-p", type=int, default=1, show_default=True, help="How many processes.")
@click.option("--batch", type=int, default=100, show_default=True, help="Messages of one bulk read and ack.")
@click.option("--by-batch", is_flag=True, help="The function takes a whole batch.")
@click.option("--idle-exit", type=duration, help="End when the queue has been empty for so long.")
@click.option(
    "--retry-delay", type=duration, default=1.0, help="Before a failed message comes back; doubles.  [1]"
)
@click.option("--max-retry-delay", type=duration, default=300.0, help="The longest of these delays.  [300]")
@click.option(
    "--handler-timeout", type=duration, help="Kill and replace a process that is stuck for so long."
)
@click.option(
    "--max-restarts", type=int, default=10, show_default=True, help="Deaths in a row that are borne."
)
@click.option("--prefetch", type=int, default=0, show_default=True, help="Messages claimed ahead.")
@click.option(
    "--keep-leases/--no-keep-leases", default=True, show_default=True, help="Extend leases meanwhile."
)
@codec_option
@json_option
@click.pass_obj
def work(
    session: Session, /, queue: str, handler: str | None, command: str | None, as_json: bool, **options: Any
) -> None:
    """Run a handler on every message, in several processes.

    A message is acked when its handler returns. When it raises, or the command ends with another exit code than 0, it
    comes back later, and after the queue's max-deliveries it goes to the dead-letter queue. Functions are
    looked for in the current folder too. Ctrl-C or SIGTERM ends it after the messages at hand; again at once, with
    the commands that still run and exit code 130: what they had comes back when its lease is over.
    """
    if (handler is None) == (command is None):
        raise click.UsageError("Give one of --handler and --exec.")
    sys.path.insert(0, str(Path.cwd()))
    task = handler if command is None else ShellCommand(command)
    assert task is not None
    with work_progress(queue) as progress:
        report = WorkerPool(session.url, queue, task, on_progress=progress, **options).run()
    if as_json:
        print_json(report)
    else:
        note(summary(report))
    if report.stops > 1:
        left = many(report.left_in_flight, "message")
        raise KeyboardInterrupt(f"ended at once with {left} in flight: back when the lease is over")


def summary(report: PoolReport) -> str:
    """What a pool has done, in one line."""
    total = report.total
    parts = [f"{many(total.worked, 'message')} worked in {in_words(report.seconds)}"]
    facts = {
        "failed": total.failed,
        "dead-lettered": total.dead_lettered,
        "given back": total.given_back,
        "lost their lease": total.lease_lost,
        "restarts": report.restarts,
    }
    parts += [f"{number:,} {what}" for what, number in facts.items() if number]
    if total.last_failure:
        parts.append(f"last failure: {total.last_failure}")
    return ", ".join(parts)
