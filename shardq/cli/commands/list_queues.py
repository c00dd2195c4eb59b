"""``shardq list``. It reads names from the store itself, so it starts without what sends, receives and settles."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from shardq.base.shard import listed, may_begin_a_name
from shardq.cli.command import LookCommand, Session, json_option, look_at_each
from shardq.cli.printing import print_columns, print_json, print_line
from shardq.core.context.retry import Retry

__all__ = ["QueueLine", "lines", "list_queues"]


class QueueLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A queue in the list."""

    name: str
    counts: Any = None  # its QueueCounts, if they are asked for


@click.command("list", cls=LookCommand, example="shardq list --counts")
@click.argument("prefix", default="")
@click.option("--counts", is_flag=True, help="Show the number of messages in each queue.")
@json_option
@click.pass_obj
def list_queues(session: Session, prefix: str, counts: bool, as_json: bool) -> None:
    """List the queues.

    With PREFIX only queues whose names start with it. Queues that shardq makes for itself are shown for a PREFIX that
    begins with _shardq/. Exit code 3 means that the store's file does not exist.
    """
    found = lines(session, prefix, counts=counts)
    if not found:
        session.check_file()
    if as_json:
        print_json({"queues": found})
    elif counts:
        print_columns([("queue", "ready", "delayed", "in flight"), *map(_row, found)])
    else:
        for line in found:
            print_line(line.name)


def lines(session: Session, prefix: str, *, counts: bool) -> list[QueueLine]:
    """Return the queues, with their counts if ``counts`` is set."""
    if not may_begin_a_name(prefix):
        return []
    names = listed(Retry(session.retry_seconds)(session.store.list_queues, prefix), prefix)
    if not counts:
        return [QueueLine(name) for name in names]
    return list(look_at_each(names, lambda name: QueueLine(name, session.client.queue(name).counts())))


def _row(line: QueueLine) -> tuple[str, int, int, int]:
    return line.name, line.counts.ready, line.counts.delayed, line.counts.in_flight
