"""``shardq purge``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import json_option, queue_argument, yes_option
from shardq.cli.printing import many, note, print_json
from shardq.cli.session import Session

__all__ = ["purge"]


@click.command(cls=ExampleCommand, example="shardq purge orders --yes")
@queue_argument
@yes_option
@json_option
@click.pass_obj
def purge(session: Session, queue: str, yes: bool, as_json: bool) -> None:
    """Remove all messages of a queue.

    Those in flight go too; the history stays.
    """
    target = session.queue(queue)
    if not yes:
        click.confirm(f"Remove all messages of queue {queue}?", abort=True, err=True)
    purged = target.purge()
    if as_json:
        print_json({"purged": purged})
    else:
        note(f"{many(purged, 'message')} removed from queue {queue}")
