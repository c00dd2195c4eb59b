"""``shardq create``."""

from __future__ import annotations

from collections.abc import Mapping

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.options import queue_argument
from shardq.cli.printing import note
from shardq.cli.session import Session
from shardq.cli.settings_options import chosen_settings, settings_options
from shardq.errors import InvalidSetting
from shardq.settings import QueueSettings

__all__ = ["create"]


@click.command(
    cls=ExampleCommand, example="shardq create orders --shards 20 --visibility-timeout 2m --retention 14d"
)
@queue_argument
@click.option(
    "--exist-ok",
    is_flag=True,
    help="Leave a queue that exists as it is; an error only if a setting given here is another there.",
)
@settings_options
@click.pass_context
def create(ctx: click.Context, /, queue: str, exist_ok: bool, **_: object) -> None:
    """Create a queue and its dead-letter queue.

    The store's schema is applied where it is missing. Durations are seconds, or have a unit: 500ms, 30s, 5m, 2h,
    7d. Settings that can be absent take the word none.
    """
    chosen = chosen_settings(ctx)
    found = ctx.ensure_object(Session).client.create_queue(queue, exist_ok=exist_ok, **chosen)
    if others := _others(found.settings, chosen):
        raise InvalidSetting(
            f"queue {queue!r} is there with other settings, and these were not applied: {', '.join(others)}; "
            f"`shardq alter {queue}` changes them"
        )
    note(f"queue {queue} is there")


def _others(settings: QueueSettings, chosen: Mapping[str, object]) -> list[str]:
    """The chosen settings that the queue does not have."""
    return [
        f"{name.replace('_', '-')} {value} (there it is {getattr(settings, name)})"
        for name, value in chosen.items()
        if getattr(settings, name) != value
    ]
