"""``shardq stats``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click

from shardq.cli.command import LookCommand, Session, json_option, queue_argument
from shardq.cli.printing import print_columns, print_json
from shardq.cli.stats_view import Snapshot, print_heat_map, rows_of, total_of, watch_live
from shardq.cli.times import duration
from shardq.client import Client
from shardq.queue import Queue
from shardq.settings import check_number

__all__ = ["snapshots", "stats"]

LONGEST_INTERVAL = 604_800.0


@click.command(cls=LookCommand, example="shardq stats orders --watch --shards")
@queue_argument
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C, with changes per second.")
@click.option("--interval", type=duration, default=1.0, help="With --watch: time between two counts.  [1]")
@click.option("--shards", is_flag=True, help="Show each shard too, as a heat map of ready messages.")
@json_option
@click.pass_obj
def stats(session: Session, queue: str, watch: bool, interval: float, shards: bool, as_json: bool) -> None:
    """Count messages by state; follow them live.

    Also shows the age of the oldest message, and for how long one has been due that nobody received. --watch --json
    prints a line of JSON each time.
    """
    check_number("interval", interval, 0.0, LONGEST_INTERVAL)
    session.looks = not watch  # which goes on when the store was away for a moment
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
    """Counts without end, ``interval`` seconds apart."""
    while True:
        yield Snapshot.take(client, queue)
        time.sleep(max(interval, 0.05))
