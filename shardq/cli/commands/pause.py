"""``shardq pause``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import queue_argument
from shardq.cli.printing import note
from shardq.cli.session import Session

__all__ = ["pause"]


@click.command(cls=ExampleCommand, example="shardq pause orders --sends")
@queue_argument
@click.option("--sends", is_flag=True, help="Refuse new messages too.")
@click.option("--only-sends", is_flag=True, help="Refuse new messages, and go on delivering.")
@click.pass_obj
def pause(session: Session, queue: str, sends: bool, only_sends: bool) -> None:
    """Stop delivering messages, or taking them.

    Messages in flight can still be acked. It takes about a second to reach everybody.
    """
    session.queue(queue).pause(delivery=not only_sends, sends=sends or only_sends)
    note(f"queue {queue} is paused: `shardq resume {queue}` ends it")
