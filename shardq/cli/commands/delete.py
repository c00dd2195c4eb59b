"""``shardq delete``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import queue_argument, yes_option
from shardq.cli.printing import many, note
from shardq.cli.session import Session

__all__ = ["delete"]


@click.command(cls=ExampleCommand, example="shardq delete orders --yes")
@queue_argument
@yes_option
@click.pass_obj
def delete(session: Session, queue: str, yes: bool) -> None:
    """Delete a queue and everything in it.

    Its history goes too. Its dead-letter queue is a queue of its own and stays.
    """
    counts = session.queue(queue).counts()
    waiting = counts.ready + counts.delayed + counts.in_flight
    if not yes:
        click.confirm(f"Delete queue {queue} with {many(waiting, 'message')}?", abort=True, err=True)
    session.client.delete_queue(queue)
    note(f"queue {queue} is deleted")
