"""``shardq receive``, and commands for received messages, by their receipts: ack, release and extend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from pathlib import Path

import click

from shardq.cli.command import (
    ExampleCommand,
    Session,
    codec_option,
    given_words,
    json_option,
    pattern_argument,
    queue_argument,
    read_each,
)
from shardq.cli.many_queues import matching
from shardq.cli.message_view import view_of
from shardq.cli.output import output_option, wait_for_reader, write_body
from shardq.cli.printing import many, note, print_json
from shardq.cli.sending import given_bodies
from shardq.cli.times import duration
from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.core.message import Message
from shardq.errors import InvalidMessage, ShardqError

__all__ = ["Settle", "ack", "extend", "receive", "release"]

MAX_BATCH = 1_000


class Settle(Enum):
    """When ``receive`` acks messages."""

    AFTER = "after they are printed"
    BEFORE = "before they are printed"
    NEVER = "never"


@click.command(cls=ExampleCommand, example="shardq receive orders --limit 100 --wait 20s --json")
@pattern_argument
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Receive at most this many.",
)
@click.option("--wait", type=duration, default=0.0, help="Wait this long for messages.")
@click.option("--ack", "after", is_flag=True, help="Ack after printing (default).")
@click.option("--no-ack", "never", is_flag=True, help="Do not ack. `ack` or `release` can do it.")
@click.option("--pop", "before", is_flag=True, help="Ack before printing: delivered at most once.")
@click.option("--receipts", is_flag=True, help="Print each body in one line, behind its receipt and a tab.")
@click.option("--visibility-timeout", type=duration, help="Instead of the queue's.")
@output_option
@codec_option
@json_option
@click.pass_obj
def receive(
    session: Session,
    queue: str,
    limit: int,
    wait: float,
    after: bool,
    never: bool,
    before: bool,
    receipts: bool,
    visibility_timeout: float | None,
    output: Path | None,
    codec: str,
    as_json: bool,
) -> None:
    """Receive messages and print them.

    Prints the body of each message on a line, however large it is, or with --json all properties. Messages are acked
    after they are printed; in a pipe, such as `shardq receive orders -n 100 | head -3`, after the reader has taken
    them. If it ends before that, the messages that it did not take are returned to the queue.

    A pattern such as 'mail/*' stands for all queues that match, as it does for workers. Queues for dead letters are not
    among them. A receipt begins with the name of its queue, which `ack`, `release` and `extend` take.

    At a body that the codec cannot read the command ends with exit code 2. Messages before it are acked, messages
    behind it are released, and the message itself is redelivered when its lease expires. With --pop, where all are
    acked already, such a body is printed as it is, with --json as body_base64, and the others too.
    """
    if after + never + before > 1:
        raise click.UsageError("Give one of --ack, --no-ack and --pop.")
    if output is not None and (limit > 1 or as_json or receipts):
        raise click.UsageError(
            "--output takes the body of one message: give it without --limit, --json, --receipts."
        )
    settle = Settle.NEVER if never else Settle.BEFORE if before else Settle.AFTER

    def show_one(message: Message, *, as_it_is: bool = False) -> None:
        form = "bytes" if as_it_is else codec
        if as_json:
            held = settle is Settle.NEVER or receipts
            print_json(view_of(message, form, held=held, in_base64=as_it_is))
        else:
            receipt = message.receipt if receipts else None
            write_body(message, form, output, message.open, receipt=receipt)

    def show(batch: Batch) -> None:
        if as_json:
            _look_for_large(batch, settle)
        if settle is Settle.BEFORE:
            _show_acked(batch, show_one, partial(show_one, as_it_is=True))
        else:
            _show_held(batch, show_one, settle)
        sys.stdout.flush()

    names = matching(session, queue)
    with session.client.consumer(
        [queue], visibility_timeout=visibility_timeout, keep_leases=settle is Settle.AFTER
    ) as consumer:
        shown = receive_messages(consumer, limit, wait, settle, show)
    if not shown:
        _note_pauses(session, names)


def _note_pauses(session: Session, names: Iterable[str]) -> None:
    """Name the queues that deliver nothing because they are paused."""
    for queue in read_each(names, session.client.queue, session.skipped_errors):
        if queue.settings.delivery_paused:
            note(
                f"queue {queue.name} delivers no messages: it is paused; `shardq resume {queue.name}` ends that"
            )


def receive_messages(
    consumer: Consumer, limit: int, wait: float, settle: Settle, show: Callable[[Batch], None]
) -> int:
    """Show up to ``limit`` messages in batches, until none arrives within ``wait`` seconds. Returns how many."""
    shown = 0
    take = consumer.pop_many if settle is Settle.BEFORE else consumer.receive
    while shown < limit:
        batch = take(min(limit - shown, MAX_BATCH), wait=wait)
        if not batch:
            break
        show(batch)
        shown += len(batch)
        if settle is Settle.AFTER:
            batch.ack()
    return shown


def _show_held(batch: Batch, show: Callable[[Message], None], settle: Settle) -> None:
    """Show messages up to one that cannot be read.

    Those before it are settled, those behind it are released. So is the first that the reader of a pipe has not taken
    when it ends.
    """
    for position, message in enumerate(batch):
        try:
            show(message)
            if settle is Settle.AFTER:
                wait_for_reader()
        except (ShardqError, BrokenPipeError) as error:
            rest = batch[position:]
            if isinstance(error, ShardqError):
                sys.stdout.flush()
                rest = batch[position + 1 :]
            if settle is Settle.AFTER:
                batch.part(batch[:position]).ack()
            batch.part(rest).release(count=False)
            raise


def _show_acked(
    batch: Batch, show: Callable[[Message], None], show_as_it_is: Callable[[Message], None]
) -> None:
    """Show messages that are acked already: all of them, also after an error with one.

    Its error is raised at the end.
    """
    failed: ShardqError | None = None
    for message in batch:
        try:
            try:
                show(message)
            except InvalidMessage as error:
                show_as_it_is(message)
                note(f"message {message.id}: {error.__cause__}; it is acked, and printed as it is")
                failed = InvalidMessage("the codec could not read all bodies: see the lines above")
        except ShardqError as error:
            note(f"message {message.id}: {error}; it is acked, and not printed")
            failed = error
    if failed is not None:
        sys.stdout.flush()
        raise failed


def _look_for_large(batch: Batch, settle: Settle) -> None:
    """Refuse a batch that would be acked without a large body that JSON has not, or name the body if it is acked."""
    large = [message for message in batch if message.large is not None]
    if settle is Settle.NEVER or not large:
        return
    if settle is Settle.AFTER:
        batch.release(count=False)
        raise InvalidMessage(
            f"{_large(large[0])} is not printed with --json, so it is not acked: receive it without --json or with "
            "--output, or print it with --no-ack"
        )
    for message in large:
        note(f"{_large(message)} is not printed with --json, and the message is acked")


def _large(message: Message) -> str:
    assert message.large is not None
    return f"the body of message {message.id} ({message.large.size:,} bytes)"


@click.command(cls=ExampleCommand, example="shardq receive orders --no-ack --receipts | shardq ack orders -")
@queue_argument
@click.argument("receipts", metavar="RECEIPT...", nargs=-1)
@click.option("--result", help="The result that the history shows, in a queue with --keep-results.")
@codec_option
@click.pass_obj
def ack(session: Session, queue: str, receipts: tuple[str, ...], result: str | None, codec: str) -> None:
    """Ack messages by their receipts.

    `shardq receive --no-ack --receipts` prints receipts. Without a receipt, or with -, receipts are read from stdin:
    the first word of each line. Acking a message again is harmless.
    """
    given = list(given_words(receipts))
    encoded = None if result is None else next(given_bodies((result,), codec))[0]
    session.queue(queue).ack(given, results=dict.fromkeys(given, encoded))
    note(f"{many(len(given), 'message')} acked")


@click.command(cls=ExampleCommand, example="shardq release orders --delay 5m RECEIPT")
@queue_argument
@click.argument("receipts", metavar="RECEIPT...", nargs=-1)
@click.option("--delay", type=duration, default=0.0, help="Redeliver them after this time.")
@click.pass_obj
def release(session: Session, queue: str, receipts: tuple[str, ...], delay: float) -> None:
    """Return messages to the queue by their receipts.

    They are redelivered. Without a receipt, or with -, receipts are read from stdin: the first word of each line.
    """
    given = list(given_words(receipts))
    session.queue(queue).release(given, delay=delay)
    note(f"{many(len(given), 'message')} released")


@click.command(cls=ExampleCommand, example="shardq extend orders 10m RECEIPT")
@queue_argument
@click.argument("seconds", metavar="DURATION", type=duration)
@click.argument("receipts", metavar="RECEIPT...", nargs=-1)
@click.pass_obj
def extend(session: Session, queue: str, seconds: float, receipts: tuple[str, ...]) -> None:
    """Extend the leases of messages by their receipts.

    The leases end after DURATION from now. Without a receipt, or with -, receipts are read from stdin: the first
    word of each line.
    """
    given = list(given_words(receipts))
    session.queue(queue).extend(given, seconds)
    note(f"{many(len(given), 'message')} held for {seconds:g} s")
