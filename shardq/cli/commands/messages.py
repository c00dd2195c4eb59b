"""Commands for messages that are not held: peek, get, history, remove and trace."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from shardq.base.receipt import MessageId
from shardq.cli.command import (
    ExampleCommand,
    ReadCommand,
    Session,
    codec_option,
    complete_queues,
    given_words,
    json_option,
    queue_argument,
)
from shardq.cli.failures import NOT_FOUND
from shardq.cli.message_view import ReadableStore, row_of, view_of
from shardq.cli.output import output_option, write_body
from shardq.cli.printing import many, note, print_columns, print_json, print_message
from shardq.cli.selection import Progress, held_options, selected_filter, selection_options
from shardq.cli.times import in_words, since_option, until_option
from shardq.client.queue import MANY, Queue
from shardq.core.logs.event_log import Event
from shardq.core.selecting import MessageFilter
from shardq.core.settings import check_number

__all__ = ["get", "history", "peek", "remove", "trace"]

SHOWN = 5
"""Messages of a preview."""


@click.command(
    cls=ReadCommand,
    example="shardq peek orders --limit 3 --json\nshardq peek orders --in-flight --owner worker-7 --until 10m",
)
@queue_argument
@click.option("--limit", "-n", type=int, default=10, show_default=True, help="Show at most this many.")
@click.option("--blocked", is_flag=True, help="Show messages that were given up and hold up their groups.")
@held_options
@selection_options
@codec_option
@json_option
@click.pass_obj
def peek(session: Session, /, queue: str, limit: int, codec: str, as_json: bool, **selection: Any) -> None:
    """Show messages without receiving them.

    Lists messages in any state, shard by shard: id, state, priority, deliveries, due time and the start of the body.
    A dead letter shows the deliveries that it had before. --codec msgpack shows the arguments of tasks.
    To find selected messages, all of the queue may be read; for --in-flight and --owner only messages in flight are.
    Of a damaged file it shows the messages of each shard up to the first unreadable one, names such shards on stderr,
    and exits with code 4.

    --since and --until bound the time of the send: --until 10m shows messages that are older than 10 minutes.
    """
    check_number("limit", limit, 1, MANY, whole=True)
    if not session.store.capabilities.backup_tools:  # it is a file, which may be damaged
        session.store = ReadableStore(session.store, session.skipped_errors)
    target, where = session.queue(queue), selected_filter(**selection)
    for message in target.peek(limit) if where is None else islice(target.select(where), limit):
        if as_json:
            print_json(view_of(message, codec))
        else:
            print_message(row_of(message, codec))


@click.command(cls=ReadCommand, example="shardq get orders:3:1:0197c8a2b4d07abc8123456789abcdef:0 --json")
@click.argument("message_id", metavar="ID")
@click.option("--unique-key", help="Show the message with this key; ID is the name of its queue.")
@output_option
@codec_option
@json_option
@click.pass_context
def get(
    ctx: click.Context,
    message_id: str,
    unique_key: str | None,
    output: Path | None,
    codec: str,
    as_json: bool,
) -> None:
    """Show one message by its id.

    Prints the body, or with --json all properties. The message can be in any state, also processed.
    """
    session = ctx.ensure_object(Session)
    if unique_key is None:
        message = session.queue(MessageId.parse(message_id).shard.queue).get(message_id)
    else:
        message = session.queue(message_id).get(unique_key=unique_key)
    if message is None:
        name, remedy = f"with the key {unique_key!r} in queue {message_id}", ""
        if unique_key is None:
            name = message_id
            remedy = f": `shardq trace {name}` shows its events, if the queue keeps them; a dead letter has another id"
        note(f"shardq: message_not_found: message {name} is not stored{remedy}")
        ctx.exit(NOT_FOUND)
    elif as_json and output is None:
        print_json(view_of(message, codec))
    else:
        queue = session.queue(MessageId.parse(message.id).shard.queue)
        write_body(message, codec, output, lambda: queue.open(message.id))


@click.command(cls=ReadCommand, example="shardq history orders --since 10m --replay --to orders-test")
@queue_argument
@since_option
@until_option
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Show at most this many.")
@click.option("--replay", is_flag=True, help="Send copies of them instead.")
@click.option(
    "--to",
    "target",
    metavar="QUEUE",
    shell_complete=complete_queues,
    help="With --replay: send the copies to this queue.",
)
@codec_option
@json_option
@click.pass_obj
def history(
    session: Session,
    queue: str,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
    replay: bool,
    target: str | None,
    codec: str,
    as_json: bool,
) -> None:
    """Show processed messages, or send them again.

    In the order in which they were acked. A queue keeps them for its history-retention.
    """
    if target is not None and not replay:
        raise click.UsageError("--to needs --replay.")
    if limit is not None and replay:
        raise click.UsageError(
            "--replay sends all of them: choose them by --since and --until, not by --limit."
        )
    session.only_reads = not replay
    found = session.queue(queue)
    if replay:
        _replay(found, since, until, target, as_json=as_json)
    else:
        for message in islice(found.history(since=since, until=until), limit and min(limit, sys.maxsize)):
            if as_json:
                print_json(view_of(message, codec))
            else:
                print_message(row_of(message, codec))
    if found.settings.history_retention == 0:
        note(f"queue {queue} keeps no history: `shardq alter {queue} --history-retention 7d` changes that")


def _replay(
    queue: Queue, since: datetime | None, until: datetime | None, target: str | None, *, as_json: bool
) -> None:
    sent = queue.replay(since=since, until=until, to=target)
    if as_json:
        print_json({"replayed": sent, "to": target or queue.name})
    else:
        note(f"{many(sent, 'message')} sent again to queue {target or queue.name}")


class Removal(msgspec.Struct, frozen=True):
    """The result of a removal: the number of messages that were removed, and the ids that are not stored."""

    removed: int
    missing: Sequence[str]


@click.command(
    cls=ExampleCommand,
    example="shardq peek orders --json | jq -r .id | shardq remove -\n"
    "shardq remove orders --header tenant=acme --until 7d",
)
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--unique-key", help="Remove the message with this key; ID is the name of its queue.")
@held_options
@selection_options
@click.option("--yes", "-y", is_flag=True, help="Do not ask before selected messages are removed.")
@json_option
@click.pass_context
def remove(
    ctx: click.Context,
    /,
    ids: tuple[str, ...],
    unique_key: str | None,
    yes: bool,
    as_json: bool,
    **selection: Any,
) -> None:
    """Remove messages by their ids, or those that are selected.

    Removes messages in any state, in flight and processed too. If a consumer holds such a message, its ack has no
    effect. Without an id, or with -, ids are read from stdin: the first word of each line. `send` and `peek` print
    ids. Exit code 3 means that a message is not stored.

    With --header, --group, --reason, --owner, --in-flight, --since or --until, ID is the name of a queue. The messages
    of it that meet all of these are shown first, and removed when that is confirmed. The moments are when messages were
    sent: --until 7d means those that are older than 7 days.
    """
    session = ctx.ensure_object(Session)
    if (where := selected_filter(**selection)) is not None:
        _remove_selected(session, ids, unique_key, where, yes=yes, as_json=as_json)
        return
    by_key = unique_key is not None
    removal = (
        _remove_by_key(session, ids, str(unique_key)) if by_key else remove_all(session, given_words(ids))
    )
    if as_json:
        print_json(removal)
    else:
        note(f"{many(removal.removed, 'message')} removed")
    if removal.missing:
        missing = removal.missing
        note(f"shardq: message_not_found: {many(len(missing), 'message')} not stored, first {missing[0]}")
        ctx.exit(NOT_FOUND)


def _remove_selected(
    session: Session,
    names: Sequence[str],
    unique_key: str | None,
    where: MessageFilter,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the selected messages, ask, and remove those that were shown: none that came since."""
    if len(names) != 1 or unique_key is not None:
        raise click.UsageError(
            "Selected messages are of one queue: give its name alone, as in shardq remove orders --until 7d."
        )
    queue, ids = session.queue(names[0]), list[str]()
    for message in queue.select(where):
        ids.append(message.id)
        if len(ids) <= SHOWN:
            note(f"  {row_of(message, 'bytes')}")
    if len(ids) > SHOWN:
        note(f"  and {many(len(ids) - SHOWN, 'more message')}")
    if ids and not yes:
        click.confirm(f"Remove {many(len(ids), 'message')} of queue {queue.name}?", abort=True, err=True)
    removed, progress = 0, Progress("removed")
    for each in ids:
        removed += queue.remove(each)
        progress(removed)
    if as_json:
        print_json({"removed": removed})
    else:
        note(f"{many(removed, 'message')} removed from queue {queue.name}")


def _remove_by_key(session: Session, ids: Sequence[str], unique_key: str) -> Removal:
    if len(ids) != 1:
        raise click.UsageError(
            "--unique-key needs the name of one queue: shardq remove orders --unique-key KEY."
        )
    removed = session.queue(ids[0]).remove(unique_key=unique_key)
    return Removal(int(removed), () if removed else (unique_key,))


def remove_all(session: Session, ids: Iterable[str]) -> Removal:
    """Remove each message from the queue that its id names. All ids are checked before the first is removed."""
    parsed = [MessageId.parse(text) for text in ids]
    missing = [
        str(identity) for identity in parsed if not session.queue(identity.shard.queue).remove(str(identity))
    ]
    return Removal(len(parsed) - len(missing), missing)


@click.command(cls=ReadCommand, example="shardq trace orders:3:1:0197c8a2b4d07abc8123456789abcdef:0")
@click.argument("message_id", metavar="ID")
@json_option
@click.pass_context
def trace(ctx: click.Context, message_id: str, as_json: bool) -> None:
    """Show the events of a message.

    Prints them in order, also those before and after moves, as far as the queue keeps them: see --events of create.
    Times are in UTC, by the store's clock. Exit code 3 means that nothing is known of the message.
    """
    name = MessageId.parse(message_id).shard.queue
    queue = ctx.ensure_object(Session).queue(name)
    events = queue.trace(message_id)
    if as_json:
        for event in events:
            print_json(event)
    else:
        print_columns(_rows(message_id, events))
    if queue.settings.events is None:
        note(f"queue {name} keeps no events: `shardq alter {name} --events 7d` changes that")
    if not events:
        note(f"shardq: message_not_found: no event of message {message_id} is kept")
        ctx.exit(NOT_FOUND)


def _rows(message_id: str, events: list[Event]) -> list[tuple[str, str, str]]:
    """Make a row of each event, with its id where that is another than in the line before."""
    rows: list[tuple[str, str, str]] = []
    shown = message_id
    for event in events:
        moment = event.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        identity = "" if event.message_id == shown else f"{event.message_id} "
        rows.append((moment, event.kind, identity + _details(event)))
        shown = event.to or event.message_id
    return rows


def _details(event: Event) -> str:
    """Describe an event in words."""
    number = None if event.delivery is None else f"delivery {event.delivery}"
    delay = None if not event.delay else f"for {in_words(event.delay)}"
    owner = None if event.owner is None else f"by {event.owner}"
    text = None if event.text is None else event.text.replace("\n", "\\n")
    to = None if event.to is None else f"as {event.to}"
    return ", ".join(filter(None, (owner, number, delay, to, text)))
