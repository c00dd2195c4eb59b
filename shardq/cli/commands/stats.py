"""``shardq stats`` and ``shardq describe``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import click
import msgspec

from shardq.base.patterns import is_pattern
from shardq.cli.command import (
    ReadCommand,
    Session,
    complete_queues,
    json_option,
    queue_argument,
    read_each,
)
from shardq.cli.many_queues import matching
from shardq.cli.printing import note, print_columns, print_json, print_line, value_text
from shardq.cli.queue_history import COLUMNS, SHORT_COLUMNS, drawn, drawn_lines
from shardq.cli.stats_view import Snapshot, Total, print_heat_map, rows_of, total_of, watch_live
from shardq.cli.times import duration, in_words
from shardq.client import Client
from shardq.client.queue import Queue
from shardq.core.counts import QueueCounts
from shardq.core.settings import QueueSettings, check_number
from shardq.core.settling.dead_letters import dead_letter_name

__all__ = ["describe", "description", "snapshots", "stats"]

LONGEST_INTERVAL = 604_800.0


EXAMPLE = """shardq stats orders --watch --shards
shardq stats 'mail/*'
shardq stats orders --since 1h"""


@click.command(cls=ReadCommand, example=EXAMPLE)
@click.argument("queue", metavar="[QUEUE|PATTERN]", required=False, shell_complete=complete_queues)
@click.option("--watch", is_flag=True, help="Continue until Ctrl-C, with changes per second.")
@click.option("--interval", type=duration, default=1.0, help="With --watch: time between two counts.  [1]")
@click.option("--shards", is_flag=True, help="Show each shard too, as a heat map of ready messages.")
@click.option(
    "--since", type=duration, metavar="TIME", help="Draw the history of this time, such as 1h, up to 24h."
)
@json_option
@click.pass_obj
def stats(
    session: Session,
    queue: str | None,
    watch: bool,
    interval: float,
    shards: bool,
    since: float | None,
    as_json: bool,
) -> None:
    """Count messages by state; follow them live. With a pattern, those of each queue that it matches.

    Also shows the age of the oldest message, and for how long the first message has been due (late). Dead letters are
    due at once, so their queue is late until they are redriven. --watch --json prints a line of JSON each time.

    --since draws numbers of messages, rates and durations of a queue, from the oldest to the newest; without a queue
    those of all together, and with a pattern the messages of each. They are sampled while `shardq work`, `serve`, `ui`,
    `metrics` or `pipeline run` is running.
    """
    check_number("interval", interval, 0.0, LONGEST_INTERVAL)
    if since is not None:
        if watch or shards:
            raise click.UsageError("--since does not go with --watch and --shards.")
        _draw(session, queue, since, as_json=as_json)
        return
    if queue is None:
        raise click.UsageError("Missing argument 'QUEUE|PATTERN'.")
    session.only_reads = not watch  # which continues when the store was unreachable for a moment
    if is_pattern(queue):
        if shards:
            raise click.UsageError("--shards goes with one queue: name it.")
        _stats_of_each(session, queue, interval if watch else None, as_json=as_json)
        return
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


def _draw(session: Session, queue: str | None, since: float, *, as_json: bool) -> None:
    """Draw the history of a queue, of those that a pattern matches, or of all together."""
    from shardq.history import read_histories  # noqa: PLC0415 - few need it

    several = queue is not None and is_pattern(queue)
    names: Sequence[str | None] = (None,) if queue is None else matching(session, queue)
    found = read_histories(session.client, names, since=since, points=SHORT_COLUMNS if several else COLUMNS)
    if as_json:
        print_json({"queues": found} if several else found[0])
        return
    if all(each.is_empty for each in found):
        note(
            "nothing was sampled in this time: samples are taken every 15 seconds while `shardq work`, `shardq serve`, "
            "`shardq ui`, `shardq metrics` or `shardq pipeline run` runs"
        )
        return
    for line in drawn_lines(found) if several else drawn(found[0]):
        print_line(line)


def _stats_of_each(session: Session, pattern: str, interval: float | None, *, as_json: bool) -> None:
    """Print the counts of the queues that a pattern matches: once, or again and again."""
    client = session.client
    while True:
        names = matching(session, pattern)
        taken = read_each(
            names, lambda name: Snapshot.take(client, client.queue(name)), session.skipped_errors
        )
        totals = list(map(total_of, taken))
        if as_json:
            print_json({"queues": totals})
        else:
            print_columns([("queue", "ready", "delayed", "in flight", "late"), *map(_line_of, totals)])
        sys.stdout.flush()
        if interval is None:
            return
        time.sleep(max(interval, 0.05))


def _line_of(total: Total) -> tuple[str, int, int, int, str]:
    late = in_words(total.late_seconds) if total.late_seconds else "none"
    return total.queue, total.ready, total.delayed, total.in_flight, late


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


@click.command(cls=ReadCommand, example="shardq describe orders --json")
@queue_argument
@json_option
@click.pass_obj
def describe(session: Session, queue: str, as_json: bool) -> None:
    """Show a queue's settings, layout and counts.

    Durations are seconds, sizes bytes, moments UTC, with --json too. A lap is the time until a time shard is written
    again.
    """
    found = description(session.queue(queue))
    if as_json:
        print_json(found)
        return
    facts = msgspec.structs.asdict(found)
    settings, counts = map(msgspec.structs.asdict, (facts.pop("settings"), facts.pop("counts")))
    shown = {"name": found.name} | settings | facts | counts
    print_columns([(name.replace("_", " "), value_text(value)) for name, value in shown.items()])


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
