"""``shardq topic`` and ``shardq subscription``."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, cast, get_args

import click

from shardq.base.outgoing_message import HeaderValue
from shardq.cli.command import (
    ExampleCommand,
    ExampleGroup,
    ReadCommand,
    Session,
    headers_option,
    json_option,
    yes_option,
)
from shardq.cli.printing import log_option, many, note, note_or_log, print_columns, print_json, print_line
from shardq.cli.sending import Stop, given_bodies
from shardq.cli.times import duration, in_words, past_moment
from shardq.errors import ShardqError
from shardq.topics.subscription import Start, SubscriptionState
from shardq.worker import JsonLog
from shardq.worker.signals import stop_signals

__all__ = ["row_of", "subscription", "topic"]

_Words = Literal["latest", "earliest"]

_topic_argument = click.argument("topic", metavar="TOPIC")
_name_argument = click.argument("name", metavar="SUBSCRIPTION")


@click.group(cls=ExampleGroup, example="shardq topic create orders --retention 1d")
def topic() -> None:
    """Create, list, relay and delete topics, and publish to them."""


@topic.command(cls=ExampleCommand, example="shardq topic create orders --retention 1d")
@_topic_argument
@click.option(
    "--retention",
    type=duration,
    help="The time for which relayed messages can be read again; a day by default.",
)
@click.option("--exist-ok", is_flag=True, help="Accept a topic that exists. It is not changed.")
@click.pass_obj
def create(session: Session, topic: str, retention: float | None, exist_ok: bool) -> None:
    """Create a topic."""
    session.client.create_topic(topic, retention=retention, exist_ok=exist_ok)
    note(f"topic {topic} {'exists' if exist_ok else 'was created'}")


@topic.command(
    "publish",
    cls=ExampleCommand,
    example="shardq topic publish orders --subject orders.7.created 'order 7'",
)
@_topic_argument
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@click.option("--subject", help="Tokens with dots between them, such as orders.7.created.")
@headers_option
@click.pass_obj
def publish(
    session: Session,
    topic: str,
    bodies: tuple[str, ...],
    subject: str | None,
    headers: dict[str, HeaderValue] | None,
) -> None:
    """Publish messages: arguments, or the lines of stdin."""
    opened, count = session.client.topic(topic), 0
    for some in given_bodies(bodies):
        opened.publish_many(some, subject=subject, headers=headers)
        count += len(some)
    note(f"{many(count, 'message')} published to topic {topic}")
    with suppress(ShardqError):  # they are stored; somebody else relays them then
        opened.relay()


@topic.command("list", cls=ReadCommand, example="shardq topic list")
@json_option
@click.pass_obj
def list_topics(session: Session, as_json: bool) -> None:
    """List the topics."""
    names = session.client.topics()
    if as_json:
        print_json(list(names))
    for name in () if as_json else names:
        print_line(name)


@topic.command("relay", cls=ExampleCommand, example="shardq topic relay orders")
@_topic_argument
@click.option("--once", is_flag=True, help="Relay waiting messages, and end.")
@log_option
@click.pass_obj
def relay(session: Session, topic: str, once: bool, log: JsonLog | None) -> None:
    """Copy published messages to the subscriptions, until Ctrl-C or SIGTERM.

    Consumers of subscriptions and publishers do so automatically. It is for a machine that does nothing else. It ends
    within five seconds, after its present step; a second Ctrl-C or SIGTERM ends it at once.
    """
    opened, stop, relayed = session.client.topic(topic), Stop(), 0
    with stop_signals(stop.ask):
        while not stop.wanted:
            relayed += opened.relay(wait=0 if once else 5)
            if once:
                break
    if log is not None:
        note_or_log(f"{many(relayed, 'envelope')} relayed", log)


@topic.command("delete", cls=ExampleCommand, example="shardq topic delete orders --yes")
@_topic_argument
@yes_option
@click.pass_obj
def delete_topic(session: Session, topic: str, yes: bool) -> None:
    """Delete a topic with all its subscriptions and their messages."""
    if not yes:
        click.confirm(f"Delete topic {topic} with all its subscriptions?", abort=True, err=True)
    session.client.delete_topic(topic)
    note(f"topic {topic} is deleted")


@click.group(cls=ExampleGroup, example="shardq subscription create orders mail --filter 'orders.*.created'")
def subscription() -> None:
    """Make, list, rewind and delete the subscriptions of a topic."""


@subscription.command(
    "create",
    cls=ExampleCommand,
    example="shardq subscription create orders mail --filter 'orders.*.created' --start earliest",
)
@_topic_argument
@_name_argument
@click.option("--filter", "patterns", multiple=True, help="A pattern of subjects; may be repeated.")
@click.option(
    "--start", help="latest, earliest, or a moment such as 2h for two hours ago.  [default: latest]"
)
@click.pass_obj
def make(session: Session, topic: str, name: str, patterns: tuple[str, ...], start: str | None) -> None:
    """Make a subscription; an existing one is not changed."""
    begin = _start(start or "latest", "--start")
    made = session.client.topic(topic).subscribe(name, filter=patterns or None, start=begin)
    print_line(made.queue.name)


@subscription.command("list", cls=ReadCommand, example="shardq subscription list orders")
@_topic_argument
@json_option
@click.pass_obj
def list_subscriptions(session: Session, topic: str, as_json: bool) -> None:
    """Show the subscriptions of a topic: their filters, pending messages and queues.

    Pending messages are ready or delayed. Published messages that were not relayed yet are not counted. The column
    history shows the part of the requested time that the topic no longer keeps.
    """
    opened = session.client.topic(topic)
    states = [opened.subscription(name).state() for name in opened.subscriptions()]
    if as_json:
        print_json(states)
    elif states:
        heads = ("subscription", "filter", "pending", "in flight", "history", "queue")
        print_columns([heads, *map(row_of, states)])


def row_of(state: SubscriptionState) -> tuple[str, ...]:
    """Show a subscription in a line."""
    missed = f"{in_words(state.missed)} missed" if state.missed else ""
    history = "is being copied" if state.filling else missed
    pending, in_flight = f"{state.ready + state.delayed:,}", f"{state.in_flight:,}"
    return state.name, state.filter, pending, in_flight, history, state.queue


@subscription.command(
    "seek", cls=ExampleCommand, example="shardq subscription seek orders mail --to earliest"
)
@_topic_argument
@_name_argument
@click.option("--to", required=True, help="earliest, or a moment such as 2h for two hours ago.")
@click.pass_obj
def seek(session: Session, topic: str, name: str, to: str) -> None:
    """Rewind: deliver messages again that were published since then, as far as the topic keeps them."""
    missed = session.client.topic(topic).subscription(name).seek(_start(to, "--to"))  # type: ignore[arg-type] # latest is refused there
    over = f"; the topic no longer keeps the first {in_words(missed.total_seconds())}" if missed else ""
    note(f"subscription {name} is rewound{over}")


@subscription.command("delete", cls=ExampleCommand, example="shardq subscription delete orders mail --yes")
@_topic_argument
@_name_argument
@yes_option
@click.pass_obj
def delete_subscription(session: Session, topic: str, name: str, yes: bool) -> None:
    """Delete a subscription with its messages and dead letters."""
    if not yes:
        click.confirm(f"Delete subscription {name} of topic {topic}?", abort=True, err=True)
    session.client.topic(topic).subscription(name).delete()
    note(f"subscription {name} is deleted")


def _start(text: str, option: str) -> Start:
    if text in get_args(_Words):
        return cast("_Words", text)
    try:
        return past_moment(text)
    except click.BadParameter:
        words = " or ".join(get_args(_Words))
        raise click.BadParameter(
            f"{text!r} is not a moment: give {words}, ISO 8601, or how long ago, such as 10m.",
            param_hint=option,
        ) from None
