"""The side queue: its messages are only moved, never worked on, so each has to arrive in another queue, and once."""

from __future__ import annotations

import time
from collections.abc import Sequence

import shardq
from shardq.client import Client

from .history import Event, Phase, is_of_side
from .lives import operations_of
from .offence import SHOWN, Offence
from .stage import Stage

__all__ = ["create_side", "finish_moves", "judge_moves", "side_queues", "start_movers", "target_of"]

MOVERS = 2
REST_SECONDS = 600
SHARE = 10  # one message there for so many in the queue under test


def side_queues(queue: str) -> tuple[str, str, str]:
    """The side queue of a queue under test, its dead letters, and where its messages go in the end."""
    side = f"{queue}.side"
    return side, f"{side}.dead", target_of(side)


def target_of(side: str) -> str:
    """Where the messages of a side queue have to arrive."""
    return side.removesuffix(".side") + ".moved"


def create_side(client: Client, queue: str, lease: float) -> None:
    """Create the queues. Nothing is dead-lettered for its deliveries: a message has one way to go."""
    side, dead, moved = side_queues(queue)
    client.create_queue(side, shards=3, time_shards=2, visibility_timeout=lease, max_deliveries=None)
    client.create_queue(dead, shards=1, time_shards=1, max_deliveries=None)
    client.create_queue(moved, shards=2, time_shards=2, max_deliveries=None)


def start_movers(stage: Stage, queue: str, messages: int, seconds: float) -> None:
    """Start the clients of the side queue."""
    side, count = side_queues(queue)[0], messages // SHARE
    stage.start("supply", "s1", queue=side, messages=count, rate=count / seconds)
    _start_movers(stage, queue)


def _start_movers(stage: Stage, queue: str) -> None:
    for number in range(1, MOVERS + 1):
        stage.start("move", f"m{number}", queue=side_queues(queue)[0])


def finish_moves(stage: Stage, client: Client, queue: str, seconds: float) -> list[str]:
    """Let the movers move everything and leave; tells of what is left.

    A message that goes to and fro between the side queue and its dead letters may be missed by both counts. So they are
    asked again when nobody moves anything any more.
    """
    until = time.monotonic() + seconds
    while True:
        problems = _wait_until_moved(client, queue, until)
        stage.end("move")
        if problems:  # a machine that is busy moves slowly: that is told, and loses nothing
            _move_the_rest(client, queue)
        if problems or not _left(client, queue):
            return problems
        _start_movers(stage, queue)


def _move_the_rest(client: Client, queue: str) -> None:
    """Move what the movers did not come to, so that only what is nowhere counts as lost."""
    side, _, moved = side_queues(queue)
    source = client.queue(side)
    with source.consumer() as consumer:
        until = time.monotonic() + REST_SECONDS
        while _left(client, queue) and time.monotonic() < until:
            source.redrive()
            for batch in consumer.batches(100, wait=1):
                batch.forward(moved, atomic=False)


def _wait_until_moved(client: Client, queue: str, until: float) -> list[str]:
    found = _left(client, queue)
    while found and time.monotonic() < until:
        time.sleep(0.2)
        found = _left(client, queue)
    return [f"the side queue was not moved in time: {found}"] if found else []


def _left(client: Client, queue: str) -> list[str]:
    """What is in the side queue and among its dead letters."""
    try:
        counted = [client.queue(name).counts() for name in side_queues(queue)[:2]]
    except (shardq.StoreUnavailable, shardq.OutcomeUnknown) as error:
        return [f"it could not be counted: {error}"]
    return [str(each) for each in counted if each.ready + each.delayed + each.in_flight]


def judge_moves(events: Sequence[Event]) -> list[Offence]:
    """What was sent to the side queue and did not arrive, or arrived more than once. It must be drained."""
    arrived: dict[str, set[str]] = {}
    for event in events:
        for each in event.deliveries if event.verb == "arrive" else ():
            arrived.setdefault(each.body, set()).add(each.id)
    confirmed = {
        body
        for each in operations_of(events, "supply")
        for body in each.invoked.bodies
        if each.phase(body) is Phase.OK
    }
    doubled = sorted(body for body, ids in arrived.items() if len(ids) > 1)
    missing = sorted(confirmed - arrived.keys())
    return [
        Offence(name, len(bodies), {body: _history(events, body) for body in bodies[:SHOWN]})
        for name, bodies in (("moved twice", doubled), ("lost on the move", missing))
        if bodies
    ]


def _history(events: Sequence[Event], body: str) -> tuple[Event, ...]:
    return tuple(
        event
        for event in events
        if is_of_side(event) and (body in event.bodies or any(each.body == body for each in event.deliveries))
    )
