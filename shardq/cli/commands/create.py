"""``shardq create``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import queue_argument
from shardq.cli.printing import note
from shardq.cli.session import Session
from shardq.cli.settings_options import chosen_settings, settings_options

__all__ = ["create"]


@click.command(
    cls=ExampleCommand, example="shardq create orders --shards 20 --visibility-timeout 2m --retention 14d"
)
@queue_argument
@click.option("--exist-ok", is_flag=True, help="Leave a queue that exists as it is, without an error.")
@settings_options
@click.pass_context
def create(ctx: click.Context, /, queue: str, exist_ok: bool, **_: object) -> None:
    """Create a queue and its dead-letter queue.

    The store's schema is applied where it is missing. Durations are seconds, or have a unit: 500ms, 30s, 5m, 2h,
    7d. Settings that can be absent take the word none.
    """
    ctx.ensure_object(Session).client.create_queue(queue, exist_ok=exist_ok, **chosen_settings(ctx))
    note(f"queue {queue} is there")
