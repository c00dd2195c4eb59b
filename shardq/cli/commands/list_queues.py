"""``shardq list``."""

from __future__ import annotations

import click
import msgspec

from shardq.cli.example import ExampleCommand
from shardq.cli.failures import StoreMissing
from shardq.cli.options import json_option
from shardq.cli.printing import print_columns, print_json, print_line
from shardq.cli.session import Session
from shardq.client import Client
from shardq.queue import QueueCounts

__all__ = ["QueueLine", "lines", "list_queues"]


class QueueLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A queue in the list."""

    name: str
    counts: QueueCounts | None = None


@click.command("list", cls=ExampleCommand, example="shardq list --counts")
@click.argument("prefix", default="")
@click.option("--counts", is_flag=True, help="Count the messages of each queue too.")
@json_option
@click.pass_obj
def list_queues(session: Session, prefix: str, counts: bool, as_json: bool) -> None:
    """List the queues.

    Only those whose names start with PREFIX, when it is given. The exit code is 3 when the store's file is not there.
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
    """The queues, with their counts where they are wanted."""
    return [
        QueueLine(name, client.queue(name).counts() if counts else None) for name in client.queues(prefix)
    ]


def _check_file(client: Client) -> None:
    """Raise StoreMissing when there is no queue because the store's file is not there."""
    for finding in client.diagnose():
        if finding.name == "file" and not finding.ok:
            raise StoreMissing(f"{finding.value}: {finding.remedy}")


def _row(line: QueueLine) -> tuple[str, int, int, int]:
    assert line.counts is not None
    return line.name, line.counts.ready, line.counts.delayed, line.counts.in_flight
