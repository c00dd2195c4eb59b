"""Commands for messages that are held, by their receipts: ``shardq ack``, ``release`` and ``extend``."""

from __future__ import annotations

import click

from shardq.cli.command import ExampleCommand, Session, codec_option, given_words, queue_argument
from shardq.cli.printing import many, note
from shardq.cli.sending import given_bodies
from shardq.cli.times import duration

__all__ = ["ack", "extend", "release"]


@click.command(cls=ExampleCommand, example="shardq receive orders --no-ack --receipts | shardq ack orders -")
@queue_argument
@click.argument("receipts", metavar="RECEIPT...", nargs=-1)
@click.option("--result", help="What the history shows them with, in a queue with --keep-results.")
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
