"""What clients write down: every invocation and what became of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

import msgspec

__all__ = [
    "CLAIMS",
    "Delivery",
    "Event",
    "Log",
    "Phase",
    "is_of_messages",
    "is_of_side",
    "read_history",
]

CLAIMS = "/claims"  # what follows a client's name where its claims are told
OF_MESSAGES = frozenset({"send", "receive", "bury", "ack", "release", "extend", "take", "claim", "start"})
SIDE = frozenset({"supply", "carry", "move", "redrive", "arrive"})


class Phase(Enum):
    """Where an operation stands. One without an outcome, because its client died, is unknown as well."""

    INVOKE = "invoke"
    OK = "ok"
    FAILED = "failed"  # it did not happen, says the client
    LOST = "lost"  # the lease was over, says the client
    UNKNOWN = "unknown"


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """One message of a batch, as its consumer saw it."""

    body: str
    id: str
    priority: int
    due: int
    deliveries: int

    @property
    def shard(self) -> str:
        return self.id.rsplit(":", 2)[0]

    @property
    def rank(self) -> tuple[int, int, str, int]:
        """What a claim of a shard sorts by."""
        bundle, position = self.id.rsplit(":", 2)[1:]
        return self.priority, self.due, bundle, int(position)


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A line of a log. Invocation and outcome of an operation share actor and number."""

    at: int  # nanoseconds of the machine's monotonic clock
    shift: int = 0  # nanoseconds by which the store's clock had been set ahead then
    actor: str
    number: int
    verb: str  # send, receive, bury (receive of a dead letter), ack, release, extend
    # of its claims: take (counts deliveries), claim (counts none), start (counts them later)
    # of the side queue: supply (send), carry (receive), move, redrive, arrive (receive of what was moved)
    # of the asked queue: ask (send; notes the id), answer (receive), finish (ack of ids), block (give up), unblock
    # (redrive), take-permit, give-permit
    # of what is built on queues: publish, hear (receive), heard (ack of ids), tick (receive), ended-tick (ack of ids),
    # ticked (notes how many occurrences a schedule had)
    # of workflows: order (send; notes the id), see-end (of an id), seek-step (receive), take-step (what that gave, by
    # the ids of steps), run-step, end-flow (notes what became of it)
    # of large bodies: film (send), watch (receive), view (read; notes whether whole), pass (move), watched (ack)
    # of Spark's tasks: fail-task (after some of its rows were stored)
    # of backups: save, restored (what is in one)
    # of the pool: offer (send), pool (it runs), hold (a process was given a batch), worked (by its handler), write-off
    # (receive of a dead letter)
    phase: Phase
    bodies: tuple[str, ...] = ()  # of a claim: ids
    deliveries: tuple[Delivery, ...] = ()
    seconds: float = 0.0  # the delay of a send or release, the lease of an extension
    batch: int = 0  # the number of the receive that gave the bodies
    repeated: bool = False  # the library repeated a request within this operation
    note: str = ""

    @property
    def store_time(self) -> int:
        """The moment on an axis that moves as the store's clock does."""
        return self.at + self.shift


def is_of_messages(event: Event) -> bool:
    """It is about the queue under test."""
    return event.verb in OF_MESSAGES


def is_of_side(event: Event) -> bool:
    """It is about the side queue, whose messages are only moved."""
    return event.verb in SIDE


class Log:
    """Events that survive the death of the process that wrote them: each is one system call."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._encoder = msgspec.json.Encoder()

    def write(self, event: Event) -> None:
        os.write(self._file, self._encoder.encode(event) + b"\n")


def read_history(paths: Iterable[Path]) -> list[Event]:
    """All events of these logs in the order of time; a last line that was cut off is left out."""
    decoder = msgspec.json.Decoder(Event)
    events: list[Event] = []
    for path in paths:
        *lines, _ = path.read_bytes().split(b"\n")
        events += map(decoder.decode, lines)
    return sorted(events, key=lambda event: event.at)
