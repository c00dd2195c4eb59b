"""``shardq sweep``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import json_option, queue_argument
from shardq.cli.printing import many, note, print_json
from shardq.cli.session import Session

__all__ = ["sweep"]


@click.command(cls=ExampleCommand, example="shardq sweep orders")
@queue_argument
@json_option
@click.pass_obj
def sweep(session: Session, queue: str, as_json: bool) -> None:
    """Remove what is too old or left over in a queue.

    Messages older than its retention that nobody holds, history that is over, and what crashed clients left behind.
    It needs no consumers, and can be run at any time.
    """
    removed = session.queue(queue).sweep()
    if as_json:
        print_json({"removed": removed})
    else:
        note(f"{many(removed, 'thing')} removed from queue {queue}")
