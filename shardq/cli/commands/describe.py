"""``shardq describe``."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from shardq.cli.command import LookCommand, Session, json_option, queue_argument
from shardq.cli.printing import print_columns, print_json
from shardq.core.counts import QueueCounts
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.queue import Queue
from shardq.settings import QueueSettings

__all__ = ["QueueDescription", "describe", "description"]


class QueueDescription(msgspec.Struct, frozen=True):
    """A queue: its settings, its layout and its counts."""

    name: str
    settings: QueueSettings
    dead_letter_queue: str | None
    shards_in_layout: int
    shards_in_use: int
    lap_seconds: float  # until a time shard is written again
    counts: QueueCounts


@click.command(cls=LookCommand, example="shardq describe orders --json")
@queue_argument
@json_option
@click.pass_obj
def describe(session: Session, queue: str, as_json: bool) -> None:
    """Show a queue's settings, layout and counts."""
    found = description(session.queue(queue))
    if as_json:
        print_json(found)
        return
    facts = msgspec.structs.asdict(found)
    settings, counts = map(msgspec.structs.asdict, (facts.pop("settings"), facts.pop("counts")))
    shown = {"name": found.name} | settings | facts | counts
    print_columns([(name.replace("_", " "), _text(value)) for name, value in shown.items()])


def description(queue: Queue) -> QueueDescription:
    """Describe a queue."""
    settings, states = queue.settings, queue.shard_states()
    return QueueDescription(
        name=queue.name,
        settings=settings,
        dead_letter_queue=dead_letter_name(queue.name, settings) if settings.has_dead_letters else None,
        shards_in_layout=settings.shards * settings.time_shards,
        shards_in_use=len(states),
        lap_seconds=settings.time_shards * settings.time_shard_seconds,
        counts=queue.counts(),
    )


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{value:g}" if isinstance(value, float) else str(value)
