"""``shardq list`` and ``shardq describe``."""

from __future__ import annotations

import click
import msgspec

from shardq.cli.command import ExampleCommand, Session, json_option, queue_argument
from shardq.cli.failures import StoreMissing
from shardq.cli.printing import print_columns, print_json, print_line
from shardq.client import Client
from shardq.queue import Queue, QueueCounts
from shardq.settings import QueueSettings
from shardq.settling.dead_letters import dead_letter_name

__all__ = ["QueueDescription", "QueueLine", "describe", "description", "lines", "list_queues"]


class QueueLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A queue in the list."""

    name: str
    counts: QueueCounts | None = None


@click.command("list", cls=ExampleCommand, example="shardq list --counts")
@click.argument("prefix", default="")
@click.option("--counts", is_flag=True, help="Show the number of messages in each queue.")
@json_option
@click.pass_obj
def list_queues(session: Session, prefix: str, counts: bool, as_json: bool) -> None:
    """List the queues.

    With PREFIX only queues whose names start with it. Exit code 3 means that the store's file does not exist.
    """
    found = lines(session.client, prefix, counts=counts)
    if not found and not session.client.queues():
        _check_file(session.client)
    if as_json:
        print_json({"queues": found})
    elif counts:
        print_columns([("queue", "ready", "delayed", "in flight"), *map(_row, found)])
    else:
        for line in found:
            print_line(line.name)


def lines(client: Client, prefix: str, *, counts: bool) -> list[QueueLine]:
    """The queues, with their counts if ``counts`` is set."""
    return [
        QueueLine(name, client.queue(name).counts() if counts else None) for name in client.queues(prefix)
    ]


def _check_file(client: Client) -> None:
    """Raise StoreMissing if there is no queue because the store's file does not exist."""
    for finding in client.diagnose():
        if finding.name == "file" and not finding.ok:
            raise StoreMissing(f"{finding.value}: {finding.remedy}")


def _row(line: QueueLine) -> tuple[str, int, int, int]:
    assert line.counts is not None
    return line.name, line.counts.ready, line.counts.delayed, line.counts.in_flight


class QueueDescription(msgspec.Struct, frozen=True):
    """A queue: its settings, its layout and its counts."""

    name: str
    settings: QueueSettings
    dead_letter_queue: str | None
    shards_in_layout: int
    shards_in_use: int
    lap_seconds: float  # until a time shard is written again
    counts: QueueCounts


@click.command(cls=ExampleCommand, example="shardq describe orders --json")
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
    settings, counts = facts.pop("settings"), facts.pop("counts")
    rows = [*(msgspec.structs.asdict(settings) | facts).items(), *msgspec.structs.asdict(counts).items()]
    print_columns([(name.replace("_", " "), _text(value)) for name, value in rows])


def description(queue: Queue) -> QueueDescription:
    """Describe a queue."""
    settings, states = queue.settings, queue.shard_states()
    return QueueDescription(
        name=queue.name,
        settings=settings,
        dead_letter_queue=dead_letter_name(queue.name, settings) if settings.max_deliveries else None,
        shards_in_layout=settings.shards * settings.time_shards,
        shards_in_use=len(states),
        lap_seconds=settings.time_shards * settings.time_shard_seconds,
        counts=queue.counts(),
    )


def _text(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
