"""``shardq extend``."""

from __future__ import annotations

import click

from shardq.cli.duration import duration
from shardq.cli.example import ExampleCommand
from shardq.cli.options import queue_argument
from shardq.cli.printing import many, note
from shardq.cli.session import Session
from shardq.cli.words import given_words

__all__ = ["extend"]


@click.command(cls=ExampleCommand, example="shardq extend orders 10m RECEIPT")
@queue_argument
@click.argument("seconds", metavar="DURATION", type=duration)
@click.argument("receipts", metavar="RECEIPT...", nargs=-1)
@click.pass_obj
def extend(session: Session, queue: str, seconds: float, receipts: tuple[str, ...]) -> None:
    """Hold messages for longer by their receipts.

    For DURATION from now on. With - or without a receipt they are read from stdin, the first word of each line.
    """
    given = list(given_words(receipts))
    session.queue(queue).extend(given, seconds)
    note(f"{many(len(given), 'message')} held for {seconds:g} s")
