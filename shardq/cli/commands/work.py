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
from shardq.worker import PoolReport, ShellCommand, WorkerOptions, WorkerPool

__all__ = ["summary", "work"]

USUAL = WorkerOptions()


@click.command(cls=ExampleCommand, example="shardq work orders --handler shop.orders:charge --processes 4")
@queue_argument
@click.option("--handler", metavar="MODULE:FUNCTION", help="Called with each message.")
@click.option(
    "--exec", "command", metavar="COMMAND", help="Run by the shell for each message, its body on stdin."
)
@click.option("--processes", "-p", type=int, default=1, show_default=True, help="How many processes.")
@click.option(
    "--batch", type=int, default=USUAL.batch, show_default=True, help="Messages of one bulk read and ack."
)
@click.option("--by-batch", is_flag=True, help="The function takes a whole batch.")
@click.option("--idle-exit", type=duration, help="End when the queue has been empty for so long.")
@click.option(
    "--retry-delay",
    type=duration,
    default=USUAL.retry_delay,
    help=f"Before a failed message is delivered again; doubles.  [{USUAL.retry_delay:g}]",
)
@click.option(
    "--max-retry-delay",
    type=duration,
    default=USUAL.max_retry_delay,
    help=f"The longest of these delays.  [{USUAL.max_retry_delay:g}]",
)
@click.option(
    "--handler-timeout", type=duration, help="Kill and replace a process that is stuck for so long."
)
@click.option(
    "--max-restarts",
    type=int,
    default=10,
    show_default=True,
    help="Consecutive crashes before giving up.",
)
@click.option(
    "--prefetch", type=int, default=USUAL.prefetch, show_default=True, help="Messages claimed ahead."
)
@click.option(
    "--keep-leases/--no-keep-leases",
    default=USUAL.keep_leases,
    show_default=True,
    help="Extend leases while the handler runs.",
)
@codec_option
@json_option
@click.pass_obj
def work(
    session: Session, /, queue: str, handler: str | None, command: str | None, as_json: bool, **options: Any
) -> None:
    """Run a handler on every message, in several processes.

    A message is acked when its handler returns, or when its command exits with code 0. Otherwise the message is
    delivered again later. After the queue's max-deliveries it goes to the dead-letter queue. Functions are also
    looked for in the current folder.

    Ctrl-C or SIGTERM ends the workers after the messages at hand. A second one ends them at once, with the commands
    that still run, and the exit code is 130. The messages they held are delivered again when their leases expire.
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
        raise KeyboardInterrupt(
            f"ended at once with {left} in flight: delivered again when the lease expires"
        )


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
