"""``shardq consumers``: the consumers with their messages, and releasing those of a dead one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import click
import msgspec

from shardq.cli.command import (
    ExampleGroup,
    ReadCommand,
    Session,
    complete_queues,
    json_option,
    read_each,
    worked_queues,
)
from shardq.cli.printing import many, note, print_columns, print_json, screen_width
from shardq.cli.times import in_words
from shardq.client import Client
from shardq.client.queue import Queue
from shardq.core.consumer_states import ConsumerState
from shardq.errors import ConsumerAlive, ConsumerNotFound, QueueNotFound, ShardqError

__all__ = ["consumers", "lines"]


class ConsumerLine(msgspec.Struct, frozen=True):
    """A consumer of one or several queues."""

    consumer: ConsumerState  # what it holds is that of all the queues
    queues: Sequence[str]


_HEADER = ("consumer", "host", "pid", "since", "last seen", "held", "queues")

consumers = ExampleGroup(
    name="consumers",
    help="List consumers with their messages, and evict a dead one.",
    example="shardq consumers list orders\nshardq consumers evict web-1-4711-9f86d081",
)


@consumers.command("list", cls=ReadCommand, example="shardq consumers list orders")
@click.argument("queue", metavar="[QUEUE]", required=False, shell_complete=complete_queues)
@click.option("--long", "-l", "is_long", is_flag=True, help="Show host, process and start too.")
@json_option
@click.pass_obj
def list_consumers(session: Session, queue: str | None, is_long: bool, as_json: bool) -> None:
    """List consumers, and how many messages each of them holds.

    Of one queue, or of all, those of subscriptions too. A consumer that was not closed is listed for 12 hours after it
    was seen last. A consumer that was closed, Spark, and a client of an older version are listed by an id alone.
    """
    found = lines(session, _queues(session.client, queue))
    if as_json:
        print_json({"consumers": [_flat(line) for line in found]})
    else:
        now = session.client.now()
        rows = [_HEADER, *(_row(line, now) for line in found)]
        print_columns(rows if is_long else [_in_short(row) for row in rows], most=screen_width())


@consumers.command(example="shardq consumers evict web-1-4711-9f86d081")
@click.argument("consumer", metavar="CONSUMER")
@click.option("--queue", shell_complete=complete_queues, help="Only its messages of this queue.")
@click.option("--force", is_flag=True, help="Even if the consumer may be alive.")
@json_option
@click.pass_obj
def evict(session: Session, consumer: str, queue: str | None, force: bool, as_json: bool) -> None:
    """Release at once the messages of a dead consumer.

    CONSUMER is its name or its id, as `shardq consumers list` shows. The deliveries count, as at the end of a lease.
    One that was seen within 16 seconds, or whose leases are younger than half of its visibility timeout, may be at
    work. It keeps its messages, unless --force. If it comes back after all, its acks fail. Exit code 3 means that no
    queue knows the consumer.
    """
    queues = list(read_each(_queues(session.client, queue), session.client.queue, session.skipped_errors))
    given = evict_from(queues, consumer, force=force)
    if as_json:
        print_json({"released": given})
    else:
        note(f"{many(given, 'message')} released")


def lines(session: Session, queues: Sequence[str]) -> list[ConsumerLine]:
    """List the consumers of all these queues, each once."""
    found: dict[tuple[str, str | None], list[tuple[str, ConsumerState]]] = {}
    queue_of = session.client.queue
    for queue, states in read_each(
        queues, lambda name: (name, queue_of(name).consumers()), session.skipped_errors
    ):
        for state in states:
            found.setdefault((state.id, state.name), []).append((queue, state))
    return [
        ConsumerLine(_joined([state for _, state in each]), [queue for queue, _ in each])
        for each in found.values()
    ]


def evict_from(queues: Sequence[Queue], consumer: str, *, force: bool) -> int:
    """Release the messages of a consumer in all these queues; returns how many.

    Raises ConsumerNotFound when none of them knows it; ConsumerAlive when it is alive in one of them, after the
    others.
    """
    given, refusals, unknown = 0, list[ConsumerAlive](), list[ShardqError]()
    for queue in queues:
        try:
            given += queue.evict(consumer, force=force)
        except ConsumerAlive as error:
            refusals.append(error)
        except (ConsumerNotFound, QueueNotFound) as error:  # or it was deleted since it was listed
            unknown.append(error)
    if refusals:
        raise refusals[0]
    if len(unknown) == len(queues):
        raise (
            unknown[0]
            if len(unknown) == 1
            else ConsumerNotFound(f"no queue has a consumer {consumer!r}: `shardq consumers list` shows them")
        )
    return given


def _queues(client: Client, queue: str | None) -> Sequence[str]:
    """Return the queue, or all that are worked on."""
    if queue is not None:
        return (client.queue(queue).name,)
    return worked_queues(client)


def _joined(states: Sequence[ConsumerState]) -> ConsumerState:
    return msgspec.structs.replace(
        states[0],
        last_seen=_latest(states, lambda state: state.last_seen),
        alive=any(state.alive for state in states),
        held=sum(state.held for state in states),
        held_until=_latest(states, lambda state: state.held_until),
    )


def _latest(
    states: Sequence[ConsumerState], moment: Callable[[ConsumerState], datetime | None]
) -> datetime | None:
    return max((found for found in map(moment, states) if found is not None), default=None)


def _flat(line: ConsumerLine) -> dict[str, object]:
    return msgspec.structs.asdict(line.consumer) | {"queues": line.queues}


def _in_short(row: Sequence[object]) -> Sequence[object]:
    return (row[0], *row[-3:])


def _row(line: ConsumerLine, now: datetime) -> tuple[object, ...]:
    state = line.consumer
    since = "" if state.since is None else state.since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    seen = "" if state.last_seen is None else f"{in_words((now - state.last_seen).total_seconds())} ago"
    return (
        state.name or state.id,
        state.host or "",
        str(state.pid or ""),
        since,
        seen if state.alive else f"{seen}, not alive",
        state.held,
        " ".join(line.queues),
    )
