"""``shardq redrive``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import json_option, queue_argument
from shardq.cli.printing import many, note, print_json
from shardq.cli.session import Session

__all__ = ["redrive"]


@click.command(cls=ExampleCommand, example="shardq redrive orders --limit 100")
@queue_argument
@click.option("--limit", type=int, help="At most so many; all without it.")
@json_option
@click.pass_obj
def redrive(session: Session, queue: str, limit: int | None, as_json: bool) -> None:
    """Move dead letters back to their queue.

    QUEUE is the queue that they came from. They come as new messages, with deliveries from 0.
    """
    moved = session.queue(queue).redrive(limit)
    if as_json:
        print_json({"redriven": moved})
    else:
        note(f"{many(moved, 'dead letter')} back in queue {queue}")
