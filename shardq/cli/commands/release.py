"""``shardq release``."""

from __future__ import annotations

import click

from shardq.cli.duration import duration
from shardq.cli.example import ExampleCommand
from shardq.cli.options import queue_argument
from shardq.cli.printing import many, note
from shardq.cli.session import Session
from shardq.cli.words import given_words

__all__ = ["release"]


@click.command(cls=ExampleCommand, example="shardq release orders --delay 5m RECEIPT")
@queue_argument
@click.argument("receipts", metavar="RECEIPT...", nargs=-1)
@click.option("--delay", type=duration, default=0.0, help="Not delivered before.")
@click.pass_obj
def release(session: Session, queue: str, receipts: tuple[str, ...], delay: float) -> None:
    """Give messages back by their receipts.

    With - or without a receipt they are read from stdin, the first word of each line.
    """
    given = list(given_words(receipts))
    session.queue(queue).release(given, delay=delay)
    note(f"{many(len(given), 'message')} released")
