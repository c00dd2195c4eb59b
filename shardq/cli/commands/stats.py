"""``shardq stats`` and ``shardq describe``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import datetime

import click
import msgspec

from shardq.cli.command import LookCommand, Session, json_option, queue_argument
from shardq.cli.printing import print_columns, print_json
from shardq.cli.stats_view import Snapshot, print_heat_map, rows_of, total_of, watch_live
from shardq.cli.times import duration
from shardq.client import Client
from shardq.core.counts import QueueCounts
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.queue import Queue
from shardq.settings import QueueSettings, check_number

__all__ = ["QueueDescription", "describe", "description", "snapshots", "stats"]

LONGEST_INTERVAL = 604_800.0


@click.command(cls=LookCommand, example="shardq stats orders --watch --shards")
@queue_argument
@click.option("--watch", is_flag=True, help="Continue until Ctrl-C, with changes per second.")
@click.option("--interval", type=duration, default=1.0, help="With --watch: time between two counts.  [1]")
@click.option("--shards", is_flag=True, help="Show each shard too, as a heat map of ready messages.")
@json_option
@click.pass_obj
def stats(session: Session, queue: str, watch: bool, interval: float, shards: bool, as_json: bool) -> None:
    """Count messages by state; follow them live.

    Also shows the age of the oldest message, and for how long the first message has been due. --watch --json prints a
    line of JSON each time.
    """
    check_number("interval", interval, 0.0, LONGEST_INTERVAL)
    session.looks = not watch  # which continues when the store was unreachable for a moment
    target = session.queue(queue)
    if watch and not as_json and sys.stdout.isatty():
        watch_live(target, snapshots(session.client, target, interval), shards=shards)
        return
    before = None
    for snapshot in snapshots(session.client, target, interval):
        total = total_of(snapshot, before, shards=shards)
        if as_json:
            print_json(total)
        else:
            print_columns(rows_of(total))
            if shards:
                print_heat_map(target, snapshot)
        sys.stdout.flush()
        if not watch:
            return
        before = snapshot


def snapshots(client: Client, queue: Queue, interval: float) -> Iterator[Snapshot]:
    """Yield counts without end, ``interval`` seconds apart."""
    while True:
        yield Snapshot.take(client, queue)
        time.sleep(max(interval, 0.05))


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
