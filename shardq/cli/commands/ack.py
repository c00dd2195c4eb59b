"""``shardq ack``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import queue_argument
from shardq.cli.printing import many, note
from shardq.cli.session import Session
from shardq.cli.words import given_words

__all__ = ["ack"]


@click.command(cls=ExampleCommand, example="shardq receive orders --no-ack --receipts | shardq ack orders -")
@queue_argument
@click.argument("receipts", metavar="RECEIPT...", nargs=-1)
@click.pass_obj
def ack(session: Session, queue: str, receipts: tuple[str, ...]) -> None:
    """Finish messages by their receipts.

    Receipts come from `shardq receive --no-ack --receipts`. With - or without one they are read from stdin, the first
    word of each line. Repeating it is harmless.
    """
    given = list(given_words(receipts))
    session.queue(queue).ack(given)
    note(f"{many(len(given), 'message')} acked")
