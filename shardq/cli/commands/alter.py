"""``shardq alter``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import queue_argument
from shardq.cli.printing import note
from shardq.cli.session import Session
from shardq.cli.settings_options import chosen_settings, settings_options

__all__ = ["alter"]


@click.command(cls=ExampleCommand, example="shardq alter orders --shards 40 --max-deliveries none")
@queue_argument
@settings_options
@click.pass_context
def alter(ctx: click.Context, /, queue: str, **_: object) -> None:
    """Change settings of a queue in use.

    Every client follows within about a second. With another layout new messages go to the new shards, and those in
    the old ones are found until they are empty.
    """
    changes = chosen_settings(ctx)
    if not changes:
        raise click.UsageError("Nothing to change: give at least one setting.", ctx)
    ctx.ensure_object(Session).queue(queue).alter(**changes)
    note(f"queue {queue} has changed: " + ", ".join(changes))
