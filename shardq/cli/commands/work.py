"""``shardq work``: a worker pool, and its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from shardq.cli.command import (
    ExampleCommand,
    Session,
    codec_option,
    complete_queues,
    json_option,
    processes_option,
)
from shardq.cli.failures import FAILURE
from shardq.cli.pools import check_ended, monitor_options, run_pool, summary
from shardq.cli.printing import log_option, note_or_log, print_json
from shardq.cli.times import duration
from shardq.tasks import TaskPool
from shardq.tasks.registry import tasks_named
from shardq.tasks.worker import BATCH
from shardq.worker import ShellCommand, WorkerOptions, WorkerPool

__all__ = ["USUAL", "work"]

USUAL = WorkerOptions()

EXAMPLE = """shardq work orders --handler shop.orders:charge --processes 4
shardq work mail --handler shop.mail:send --threads 16
shardq work mail/urgent mail/usual --handler shop.mail:send --weight mail/urgent=3
shardq work --tasks shop.tasks --processes 4 --threads 8"""


def _weights(
    _context: click.Context, _parameter: click.Parameter, given: Sequence[str]
) -> dict[str, float] | None:
    return dict(map(_weight, given)) or None


def _split(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _weight(given: str) -> tuple[str, float]:
    name, number = _split(given)
    try:
        return name, float(number)
    except ValueError:
        raise click.BadParameter(f"{given!r} has no number: give QUEUE=NUMBER, such as orders=3") from None


@click.command(cls=ExampleCommand, example=EXAMPLE)
@click.argument("queues", metavar="[QUEUE|PATTERN]...", nargs=-1, shell_complete=complete_queues)
@click.option(
    "--handler",
    "handlers",
    metavar="[QUEUE=]MODULE:FUNCTION",
    multiple=True,
    help="A function to call with each message, or with each of one queue; may be repeated.",
)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="A shell command to run for each message. The body is on its stdin.",
)
@click.option(
    "--tasks",
    metavar="MODULE[:APP]",
    help="Run the tasks of this app, from the queues that are named, or from all of the app.",
)
@click.option(
    "--threads",
    type=int,
    default=USUAL.threads,
    show_default=True,
    help="Messages or tasks that each process works on at a time.",
)
@processes_option
@click.option(
    "--batch",
    type=int,
    default=USUAL.batch,
    help=f"Messages in one bulk read and ack.  [default: {USUAL.batch}, or {BATCH} with --tasks]",
)
@click.option("--by-batch", is_flag=True, help="Call the function with a whole batch.")
@click.option(
    "--idle-exit",
    type=duration,
    help="End when nothing was due for this time; delayed messages do not count.",
)
@click.option(
    "--retry-delay",
    type=duration,
    help="Delay before a failed message is delivered again; doubles.  [the queue's]",
)
@click.option("--max-retry-delay", type=duration, help="The longest such delay.  [the queue's]")
@click.option(
    "--on-error",
    metavar="MODULE:FUNCTION",
    help="A function of message and error that returns an outcome for the message, or None.",
)
@click.option(
    "--handler-timeout",
    type=duration,
    help="Kill and replace a process that finishes no message for this time.",
)
@click.option(
    "--max-restarts",
    type=int,
    default=10,
    show_default=True,
    help="Consecutive crashes before giving up.",
)
@click.option(
    "--fail-on-error",
    is_flag=True,
    help="Exit with code 1 if a handler has failed or a process was replaced, even if a later delivery succeeded.",
)
@click.option(
    "--prefetch", type=int, default=USUAL.prefetch, show_default=True, help="Messages to claim ahead."
)
@click.option(
    "--semaphore", metavar="NAME", help="Hold a permit of this semaphore for each call of the handler."
)
@click.option(
    "--weight",
    "weights",
    metavar="QUEUE=NUMBER",
    multiple=True,
    callback=_weights,
    help="The share of one of several queues, in messages; 1 without it. May be repeated.",
)
@click.option(
    "--order",
    type=click.Choice(["fair", "strict"]),
    default=USUAL.order,
    show_default=True,
    help="How several queues take turns: by weights, or the first that has messages.",
)
@click.option(
    "--keep-leases/--no-keep-leases",
    default=USUAL.keep_leases,
    show_default=True,
    help="Extend leases while the handler runs.",
)
@codec_option
@monitor_options
@log_option
@json_option
@click.pass_obj
def work(
    session: Session,
    /,
    queues: tuple[str, ...],
    handlers: tuple[str, ...],
    command: str | None,
    tasks: str | None,
    fail_on_error: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a handler on the messages of one queue or several, in several processes.

    A message is acked when its handler returns, or when its command exits with code 0. Otherwise the message is
    delivered again later. After the queue's max-deliveries it goes to the dead-letter queue, and at once when its
    command exits with code 65 (EX_DATAERR). Functions are also looked for in the current folder.
    A pattern such as 'mail/*' stands for all queues that match, also for those that are created later.

    Ctrl-C or SIGTERM ends the workers after the messages at hand. A second one ends them at once, with the commands
    that still run, and the exit code is 130. The messages they held are delivered again when their leases expire.

    A command finds the id of its message in the environment variable SHARDQ_ID, and its queue in SHARDQ_QUEUE.
    SHARDQ_DELIVERIES is the number of its deliveries, this one included. TRACEPARENT is there for a traced message.

    The page /livez answers while the loop of the pool runs, and never asks the store. The page /readyz answers when the
    store does, too. These pages and /metrics show names and counts to anybody who reaches their ports. They show no
    body of a message.

    With --tasks the queues of the tasks are created if they are missing. The store is the one that the app names, as
    Tasks(url), unless --url is given.
    """
    if bool(handlers) + (command is not None) + (tasks is not None) != 1:
        raise click.UsageError("Give one of --handler, --exec and --tasks.")
    sys.path.insert(0, str(Path.cwd()))
    make: Callable[..., WorkerPool]
    if tasks is not None:
        title, url, options = tasks, _url_of(session, tasks), _of_tasks(options)
        make = partial(TaskPool, url, tasks, queues=queues)
    else:
        task = _handlers(queues, handlers, command)
        title, url = ", ".join(queues), session.url
        make = partial(WorkerPool, url, queues, task)
    report = run_pool(make, url, title, options)
    if as_json:
        print_json(report)
    else:
        note_or_log(summary(report), options["log"])
    check_ended(report)
    if fail_on_error and (report.total.failed or report.restarts):
        click.get_current_context().exit(FAILURE)


def _url_of(session: Session, tasks: str) -> str:
    """Return the store to which the tasks are sent: that of their app, unless one is given on the command line."""
    own = None if session.given else tasks_named(tasks).url
    return session.url if own is None else own


def _of_tasks(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without those that tasks have no use for, and with the usual batch of tasks."""
    if click.get_current_context().get_parameter_source("batch") is ParameterSource.DEFAULT:
        options["batch"] = BATCH
    for name in ("by_batch", "on_error", "prefetch", "codec"):
        given = options.pop(name)
        if given != getattr(USUAL, name) and given is not USUAL.body_codec:
            raise click.UsageError(f"--{name.replace('_', '-')} does not go with --tasks.")
    return options


def _handlers(
    queues: Sequence[str], handlers: Sequence[str], command: str | None
) -> Mapping[str, str | ShellCommand]:
    """Return the handler of each queue: a function by its name, or a command."""
    if not queues:
        raise click.UsageError("Missing argument 'QUEUE...'.")
    return _by_queue(queues, handlers) if command is None else dict.fromkeys(queues, ShellCommand(command))


def _by_queue(queues: Sequence[str], handlers: Sequence[str]) -> dict[str, str]:
    """Return the handler of each queue: its own, or the one that was given without a queue."""
    own = [_split(handler) for handler in handlers if "=" in handler]
    usual = [handler for handler in handlers if "=" not in handler]
    if len(usual) > 1 or len(dict(own)) < len(own):
        raise click.UsageError("Two handlers for one queue: give --handler QUEUE=MODULE:FUNCTION for each.")
    return {queue: handler for handler in usual for queue in queues} | dict(own)
