"""Commands for queues: ``shardq delete``, ``purge``, ``sweep``, ``pause``, ``resume``, ``redrive``, ``expire``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

import click
import msgspec

from shardq.base.patterns import is_pattern
from shardq.base.shard import INTERNAL
from shardq.cli.command import (
    ExampleCommand,
    Session,
    complete_queues,
    json_option,
    pattern_argument,
    pattern_yes_option,
    queue_argument,
    worked_queues,
    yes_option,
)
from shardq.cli.failures import exit_code_of_all
from shardq.cli.many_queues import Operation, changes_of, on_each
from shardq.cli.printing import many, note, print_json
from shardq.cli.selection import Progress, selected_filter, selection_options
from shardq.client import Client
from shardq.client.queue import Queue
from shardq.core.selecting import MessageFilter
from shardq.core.settling.dead_letters import came_from, dead_letter_name
from shardq.errors import QueueNotFound, ShardqError

__all__ = ["delete", "expire", "pause", "purge", "redrive", "resume", "sweep"]


@click.command(cls=ExampleCommand, example="shardq delete orders --yes")
@queue_argument
@yes_option
@click.pass_obj
def delete(session: Session, queue: str, yes: bool) -> None:
    """Delete a queue and everything in it.

    Its history and its schedules are deleted too. Its dead-letter queue is a separate queue and stays.
    """
    counts = session.queue(queue).counts()
    waiting = many(counts.backlog, "message")
    schedules = len(session.client.schedules.list(queue))
    also = f" and {many(schedules, 'schedule')}" if schedules else ""
    if not yes:
        click.confirm(f"Delete queue {queue} with {waiting}{also}?", abort=True, err=True)
    session.client.delete_queue(queue)
    note(f"queue {queue} is deleted")


@click.command(cls=ExampleCommand, example="shardq expire replies/")
@click.argument("prefix", default="", shell_complete=complete_queues)
@json_option
@click.pass_obj
def expire(session: Session, prefix: str, as_json: bool) -> None:
    """Delete queues that have expired.

    Those whose names begin with PREFIX, and that were empty and unused for as long as their `expires` says. The time
    begins when this command, or a consumer of a queue beside it, first finds a queue unused. Run it now and then.
    """
    deleted = session.client.delete_expired_queues(prefix)
    if as_json:
        print_json({"deleted": deleted})
        return
    for name in deleted:
        click.echo(name)
    note(f"{many(len(deleted), 'queue')} deleted")


@click.command(cls=ExampleCommand, example="shardq purge orders --yes\nshardq purge 'mail/*'")
@pattern_argument
@yes_option
@json_option
@click.pass_obj
def purge(session: Session, queue: str, yes: bool, as_json: bool) -> None:
    """Remove all messages of a queue.

    Messages in flight are removed too. The history stays.

    A pattern such as 'mail/*' stands for each queue that it matches. The changes are shown first, and confirmed. Then
    --json prints the number of each queue.
    """
    if is_pattern(queue):
        on_each(session, queue, _PURGE, yes=yes, as_json=as_json)
        return
    target = session.queue(queue)
    if not yes:
        click.confirm(f"Remove all messages of queue {queue}?", abort=True, err=True)
    purged = target.purge()
    if as_json:
        print_json({"purged": purged})
    else:
        note(f"{many(purged, 'message')} removed from queue {queue}")


@click.command(
    cls=ExampleCommand, example="shardq sweep orders\nshardq sweep --prefix shop.\nshardq sweep --all"
)
@click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=complete_queues)
@click.option(
    "--prefix", "prefixes", multiple=True, help="Sweep queues whose names begin so. May be repeated."
)
@click.option("--all", "everything", is_flag=True, help="Sweep all queues, those of subscriptions too.")
@json_option
@click.pass_context
def sweep(
    ctx: click.Context, queues: tuple[str, ...], prefixes: tuple[str, ...], everything: bool, as_json: bool
) -> None:
    """Remove old messages and leftovers of queues.

    Removes messages that are older than the queue's retention and not in flight, history that is older than its
    history-retention, and leftovers of crashed clients. It needs no consumers and can be run at any time. One queue
    that fails does not keep the others from being swept. The exit code is that of its error, or 1 if several differ.
    """
    if bool(queues or prefixes) == everything:
        raise click.UsageError("Give --all alone." if everything else "Give a queue, --prefix or --all.")
    session = ctx.ensure_object(Session)
    names = list(dict.fromkeys([*queues, *_beginning_with(session, ("",) if everything else prefixes)]))
    if len(names) == 1 and queues:
        swept = Swept({names[0]: session.queue(names[0]).sweep()}, {})
    else:
        swept = sweep_each(session.client, names, named=queues)
    if as_json:
        failed = {name: {"code": error.code, "error": str(error)} for name, error in swept.failed.items()}
        print_json({"removed": sum(swept.removed.values()), "queues": swept.removed, "failed": failed})
    else:
        for name, removed in swept.removed.items():
            note(f"{many(removed, 'thing')} removed from queue {name}")
    ctx.exit(exit_code_of_all(swept.failed.values()))


class Swept(msgspec.Struct, frozen=True):
    """How many things were removed from each queue, and the errors of those that were not swept."""

    removed: dict[str, int]
    failed: dict[str, ShardqError]


def sweep_each(client: Client, names: Sequence[str], *, named: Collection[str] = ()) -> Swept:
    """Sweep queues one after the other, also after failures. Errors are printed on stderr as they happen.

    A queue that is gone is an error only if it was ``named``: others were found in a list. No more queues are tried
    once the store does not answer a ping either.
    """
    removed: dict[str, int] = {}
    failed: dict[str, ShardqError] = {}
    for place, name in enumerate(names):
        try:
            removed[name] = client.queue(name).sweep()
        except ShardqError as error:
            if isinstance(error, QueueNotFound) and name not in named:
                continue
            failed[name] = error
            note(f"queue {name} was not swept: {error}")
            if error.retryable and (gone := _absence(client)) is not None:
                failed |= dict.fromkeys(names[place + 1 :], gone)
                note(f"{many(len(names) - place - 1, 'more queue')} not swept: {gone}")
                break
    return Swept(removed, failed)


def _beginning_with(session: Session, prefixes: Sequence[str]) -> Iterator[str]:
    """Yield the queues that are worked on and begin with one of these.

    Of shardq's own ones all, if a prefix is of those.
    """
    worked = worked_queues(session.client) if prefixes else []
    if prefixes and not worked:
        session.check_file()
    for prefix in prefixes:
        yield from session.client.queues(prefix) if prefix.startswith(INTERNAL) else ()
        yield from (name for name in worked if name.startswith(prefix))


def _absence(client: Client) -> ShardqError | None:
    try:
        client.ping()
    except ShardqError as error:
        return error
    return None


def _waiting(queue: Queue) -> str:
    waiting = queue.counts().backlog
    return many(waiting, "message") if waiting else ""


_PURGE = Operation(
    "Remove all messages of",
    "purged",
    _waiting,
    Queue.purge,
    lambda name, purged: f"{many(purged, 'message')} removed from queue {name}",
)


@click.command(cls=ExampleCommand, example="shardq pause orders --sends\nshardq pause 'mail/*' --yes")
@pattern_argument
@click.option("--sends", is_flag=True, help="Refuse new messages too.")
@click.option("--only-sends", is_flag=True, help="Refuse new messages, but still deliver.")
@pattern_yes_option
@click.pass_obj
def pause(session: Session, queue: str, sends: bool, only_sends: bool, yes: bool) -> None:
    """Stop delivering messages, or accepting new ones.

    Messages in flight can still be acked. Every client follows within about a second.

    A pattern such as 'mail/*' stands for each queue that it matches. The changes are shown first, and confirmed.
    """
    wanted = {"delivery_paused": not only_sends, "sends_paused": sends or only_sends}
    delivery = "still delivers" if only_sends else "delivers no messages"
    accepting = "accepts no new ones" if sends or only_sends else "still accepts new ones"

    def text_of(name: str, _: None = None) -> str:
        return f"queue {name} {delivery} and {accepting}: `shardq resume {name}` ends it"

    def stop(target: Queue) -> None:
        target.pause(delivery=not only_sends, sends=sends or only_sends)

    if is_pattern(queue):
        operation = Operation("Pause", "paused", partial(changes_of, wanted=wanted), stop, text_of)
        on_each(session, queue, operation, yes=yes, as_json=False)
        return
    stop(session.queue(queue))
    note(text_of(queue))


@click.command(cls=ExampleCommand, example="shardq resume orders\nshardq resume 'mail/*' --yes")
@pattern_argument
@pattern_yes_option
@click.pass_obj
def resume(session: Session, queue: str, yes: bool) -> None:
    """Deliver and accept messages again.

    A pattern such as 'mail/*' stands for each queue that it matches. The changes are shown first, and confirmed.
    """

    def text_of(name: str, _: None = None) -> str:
        return f"queue {name} delivers and accepts messages"

    if is_pattern(queue):
        wanted = {"delivery_paused": False, "sends_paused": False}
        operation = Operation("Resume", "resumed", partial(changes_of, wanted=wanted), Queue.resume, text_of)
        on_each(session, queue, operation, yes=yes, as_json=False)
        return
    session.queue(queue).resume()
    note(text_of(queue))


@click.command(cls=ExampleCommand, example="shardq redrive orders --limit 100\nshardq redrive 'mail/*' --yes")
@pattern_argument
@click.option("--limit", type=int, help="Move at most this many. Default: all.")
@selection_options
@click.option("--yes", "-y", is_flag=True, help="With a pattern or a selection: do not ask.")
@json_option
@click.pass_obj
def redrive(
    session: Session, /, queue: str, limit: int | None, yes: bool, as_json: bool, **selection: Any
) -> None:
    """Move dead letters back to their queue.

    QUEUE is the queue that they came from, not the dead-letter queue. They are new messages there: their deliveries
    start at 0. Those that block their groups keep their places.

    A pattern such as 'mail/*' stands for each queue that it matches. The numbers of their dead letters are shown
    first, and confirmed. --limit is for each of them, and --json prints the number of each.

    With --header, --group, --reason, --since or --until only dead letters that meet all of these are moved; how many
    these are is shown first, and confirmed. The moments are when messages became dead letters.
    """
    where = selected_filter(**selection, by_due=True)
    if is_pattern(queue) or where is not None:
        if not is_pattern(queue):
            _check_is_source(session, session.queue(queue))
        operation = Operation(
            "Move the dead letters back to",
            "redriven",
            partial(_dead_letters, session.client, limit=limit, where=where),
            lambda each: each.redrive(limit, where=where, progress=Progress("redriven")),
            _redriven,
        )
        on_each(session, queue, operation, yes=yes, as_json=as_json)
        return
    target = session.queue(queue)
    moved = target.redrive(limit)
    dead = dead_letter_name(queue, target.settings)
    if not moved and not session.client.exists(dead):
        raise _nothing_to_redrive(queue, dead)
    if as_json:
        print_json({"redriven": moved})
    else:
        note(_redriven(queue, moved))


def _dead_letters(client: Client, queue: Queue, *, limit: int | None, where: MessageFilter | None) -> str:
    """Return in words which messages of a queue are redriven, those that block their groups first; "" for none."""
    dead = dead_letter_name(queue.name, queue.settings)
    waiting = 0
    if client.exists(dead) and where is None:  # those of other queues, too
        waiting = client.queue(dead).counts().backlog
    elif client.exists(dead) and where is not None:
        dead_letters = client.queue(dead).select(where)
        waiting = sum(came_from(each.headers) == queue.name for each in dead_letters)
    may_block = queue.settings.on_dead_letter == "block"
    wanted = msgspec.structs.replace(where or MessageFilter(), blocked=True)
    blocking = sum(1 for _ in queue.select(wanted)) if may_block else 0
    rest = None if limit is None else max(0, limit - blocking)
    texts = [f"{_first_of(waiting, rest)} in {dead}"] * bool(waiting)
    texts += [f"{_first_of(blocking, limit)} that block their groups"] * bool(blocking)
    return ", ".join(texts)


def _first_of(count: int, limit: int | None) -> str:
    """Write a number of messages, and how many of them a limit allows if that is less."""
    return (
        many(count, "message")
        if limit is None or limit >= count
        else f"{limit:,} of {many(count, 'message')}"
    )


def _redriven(name: str, moved: int) -> str:
    return f"{many(moved, 'dead letter')} back in queue {name}"


def _check_is_source(session: Session, queue: Queue) -> None:
    """Raise QueueNotFound for a dead-letter queue, whose messages go back to another queue."""
    if not session.client.exists(dead_letter_name(queue.name, queue.settings)):
        queue.redrive(where=MessageFilter(ids=frozenset()))  # moves nothing


def _nothing_to_redrive(queue: str, dead: str) -> QueueNotFound:
    """Make the error for a queue without dead letters."""
    return QueueNotFound(
        f"queue {queue!r} has no dead-letter queue {dead!r}: give the queue that the dead letters came from"
    )
