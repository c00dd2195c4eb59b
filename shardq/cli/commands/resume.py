"""``shardq resume``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import queue_argument
from shardq.cli.printing import note
from shardq.cli.session import Session

__all__ = ["resume"]


@click.command(cls=ExampleCommand, example="shardq resume orders")
@queue_argument
@click.pass_obj
def resume(session: Session, queue: str) -> None:
    """Deliver and take messages again."""
    session.queue(queue).resume()
    note(f"queue {queue} delivers and takes messages")
