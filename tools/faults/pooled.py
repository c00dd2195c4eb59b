"""The queue of a pool of workers: every message is worked, but for those that kill the process which holds them."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.client import Client

from .history import Event, Phase
from .lives import operations_of
from .offence import SHOWN, Offence
from .stage import Stage
from .waiting import wait_until_empty

__all__ = [
    "HANDLER_SECONDS",
    "MAX_DELIVERIES",
    "create_pooled",
    "finish_pooled",
    "is_poison",
    "judge_pooled",
    "pooled_queue",
    "start_pool",
    "wake_pool",
]

SHARE = 40  # one message there for so many in the queue under test
POISON = frozenset(
    {5, 20, 45, 120, 300}
)  # numbers of messages: few, as the pool waits before it starts the next process
MAX_DELIVERIES = 3
HANDLER_SECONDS = 5.0  # within so many, the processes of a pool end whose parent was killed
OF_POOL = ("offer", "hold", "worked", "write-off")


def pooled_queue(queue: str) -> str:
    """The queue of the pool beside a queue under test."""
    return f"{queue}.pooled"


def is_poison(body: str) -> bool:
    """True for a message that kills every process which is given it."""
    return int(body.rpartition("-")[2]) in POISON


def create_pooled(client: Client, queue: str, lease: float) -> None:
    """Create the queue, whose messages become dead letters."""
    client.create_queue(
        pooled_queue(queue),
        shards=2,
        time_shards=2,
        visibility_timeout=lease,
        max_deliveries=MAX_DELIVERIES,
    )


def start_pool(stage: Stage, queue: str, messages: int, seconds: float) -> None:
    """Start the client that sends, and the pool."""
    name, count = pooled_queue(queue), messages // SHARE
    stage.start("offer", "d1", queue=name, messages=count, rate=count / seconds)
    stage.start("pool", "x1", queue=name)


def wake_pool(client: Client, queue: str) -> None:
    """Give the pool something to do, by which it is seen to get on."""
    with client.queue(pooled_queue(queue)).producer() as producer:
        producer.send(b"awake-0")


def finish_pooled(stage: Stage, client: Client, queue: str, seconds: float) -> list[str]:
    """Let everything be worked, and the pool leave; tells of what is left."""
    problems = wait_until_empty(client.queue(pooled_queue(queue)), seconds)
    stage.end("pool")
    return problems


def judge_pooled(events: Sequence[Event]) -> list[Offence]:
    """What was neither worked nor given up, and what was given up without reason. It must be drained.

    A message at its last delivery is held alone. So one that is given up after a process died of another message,
    was held together with that one.
    """
    confirmed = {
        body
        for each in operations_of(events, "offer")
        for body in each.invoked.bodies
        if each.phase(body) is Phase.OK
    }
    poison = {body for body in confirmed if is_poison(body)}
    worked = {body for event in events if event.verb == "worked" for body in event.bodies}
    letters = [each for event in events if event.verb == "write-off" for each in event.deliveries]
    dead = {each.body for each in letters}
    found = {
        "poison that is no dead letter": poison - dead,
        "poison that was worked": {body for body in worked if is_poison(body)},
        "dead because of another message": dead & _held_beside_poison(events),
        "given up too early": {each.body for each in letters if each.deliveries < MAX_DELIVERIES},
        "offered and lost": confirmed - poison - worked - dead,
    }
    return [
        Offence(name, len(bodies), {body: _history(events, body) for body in sorted(bodies)[:SHOWN]})
        for name, bodies in found.items()
        if bodies
    ]


def _held_beside_poison(events: Sequence[Event]) -> set[str]:
    """Messages without poison that were at their last delivery when another one killed the process that held them."""
    return {
        each.body
        for event in events
        if event.verb == "hold" and any(is_poison(each.body) for each in event.deliveries)
        for each in event.deliveries
        if each.deliveries >= MAX_DELIVERIES and not is_poison(each.body)
    }


def _history(events: Sequence[Event], body: str) -> tuple[Event, ...]:
    return tuple(
        event
        for event in events
        if event.verb in OF_POOL
        and (body in event.bodies or any(each.body == body for each in event.deliveries))
    )
