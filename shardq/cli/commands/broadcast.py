"""``shardq broadcast``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import click

from shardq.base.outgoing_message import HeaderValue
from shardq.broadcast import Broadcast, Subscription
from shardq.broadcast.broadcast import KEEP_SECONDS
from shardq.cli.command import (
    ExampleCommand,
    ExampleGroup,
    Session,
    codec_option,
    headers_option,
    json_option,
)
from shardq.cli.message_view import view_of
from shardq.cli.output import write_body
from shardq.cli.printing import log_option, many, note, note_or_log, print_json
from shardq.cli.sending import given_bodies
from shardq.cli.times import duration
from shardq.client.batch import Batch
from shardq.worker import JsonLog
from shardq.worker.signals import stop_signals

__all__ = ["broadcast", "listen"]

_AT_ONCE = 1_000

_name_argument = click.argument("name", metavar="BROADCAST")


@click.group(cls=ExampleGroup, example="shardq broadcast publish prices 'tea 3'")
def broadcast() -> None:
    """Send messages to all current listeners, and listen."""


@broadcast.command(cls=ExampleCommand, example="shardq broadcast publish prices 'tea 3' --ttl 1m")
@_name_argument
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@headers_option
@click.option("--ttl", type=duration, help="Deliver it for this time only.")
@codec_option
@json_option
@click.pass_obj
def publish(
    session: Session,
    name: str,
    bodies: tuple[str, ...],
    headers: dict[str, HeaderValue],
    ttl: float | None,
    codec: str,
    as_json: bool,
) -> None:
    """Send messages to all current listeners: arguments, or the lines of stdin.

    Prints how many listeners there were, for the last messages. Later listeners do not get them.
    """
    opened, messages, subscribers = Broadcast(session.client, name), 0, 0
    for some in given_bodies(bodies, codec):
        subscribers = opened.publish_many(some, headers=headers, ttl=ttl)
        messages += len(some)
    if as_json:
        print_json({"broadcast": name, "messages": messages, "subscribers": subscribers})
    else:
        note(f"{many(messages, 'message')} sent to {many(subscribers, 'subscriber')} of {name}")


@broadcast.command(cls=ExampleCommand, example="shardq broadcast subscribe prices --json")
@_name_argument
@click.option("--limit", "-n", type=click.IntRange(min=1), help="End after this number of messages.")
@click.option("--wait", type=duration, help="End when nothing came for this time.")
@click.option(
    "--keep",
    type=duration,
    default=f"{KEEP_SECONDS:g}s",
    show_default=True,
    help="For how long a message waits to be printed.",
)
@codec_option
@log_option
@json_option
@click.pass_obj
def subscribe(
    session: Session,
    name: str,
    limit: int | None,
    wait: float | None,
    keep: float,
    codec: str,
    as_json: bool,
    log: JsonLog | None,
) -> None:
    """Print messages that are published from now on, until Ctrl-C or SIGTERM.

    Prints the body of each message on a line, or with --json all properties.
    """

    def show(batch: Batch) -> None:
        for message in batch:
            if as_json:
                print_json(view_of(message, codec))
            else:
                write_body(message, codec, None, message.open)
        sys.stdout.flush()

    with Broadcast(session.client, name).subscribe(keep=keep) as subscription:
        note_or_log(f"subscribed to {name}", log)
        with stop_signals(subscription.stop):
            listen(subscription, limit or math.inf, math.inf if wait is None else wait, show)


def listen(subscription: Subscription, limit: float, wait: float, show: Callable[[Batch], None]) -> None:
    """Show and ack up to ``limit`` messages, until none arrives within ``wait`` seconds, or it is stopped."""
    while limit > 0 and (batch := subscription.receive(int(min(limit, _AT_ONCE)), wait=wait)):
        show(batch)
        batch.ack()
        limit -= len(batch)
