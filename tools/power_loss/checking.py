"""What an image has to hold, checked with shardq itself."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from enum import Enum
from pathlib import Path

import msgspec

import shardq

from .client import QUEUE, body_of
from .marks import Fate, Ledger

__all__ = ["Offence", "check_integrity", "check_messages", "misplaced"]

_LATE_SECONDS = 60.0  # a hint that the cut left wrong may make a message late: by 30 s, shardq says


def check_integrity(path: Path) -> Iterator[Offence]:
    """What is wrong with a file of SQLite."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path)) as file:
            answer = [row[0] for row in file.execute("PRAGMA integrity_check(3)")]
    except sqlite3.Error as error:
        answer = [str(error)]
    if answer != ["ok"]:
        yield Offence(f"corrupt: {answer}")


class Offence(msgspec.Struct, frozen=True):
    """Something that should not be."""

    what: str
    undone: int | None = None  # microseconds: what was told in that time before the cut must be lost for it


class Place(Enum):
    """Where a message is."""

    NOWHERE = "lost"
    HERE = "back"
    DEAD = "among the dead letters"
    BOTH = "here and dead"


_PLACES = {
    Fate.SENDING: {Place.NOWHERE, Place.HERE},
    Fate.SENT: {Place.HERE},
    Fate.ACKING: {Place.HERE, Place.NOWHERE},
    Fate.ACKED: {Place.NOWHERE},
    Fate.DYING: {Place.HERE, Place.DEAD},
    Fate.DEAD: {Place.DEAD},
}


def check_messages(
    connect: Callable[[], shardq.Client], ledger: Ledger, at: int, *, moves_at_once: bool = True
) -> Iterator[Offence]:
    """What is wrong with the messages after a cut ``at`` a moment; all leases are over."""
    try:
        with connect() as client:
            here, dead = (
                _drain(client, name) if client.exists(name) else Counter()
                for name in (QUEUE, f"{QUEUE}.dead")
            )
    except shardq.ShardqError as error:
        yield Offence(f"unusable: {type(error).__name__}: {error}")
        return
    for found in (here, dead):
        yield from _named("twice", [body for body, count in found.items() if count > 1])
    strange = {body for body in {*here, *dead} if body not in ledger.histories or not _whole(body)}
    yield from _named("never sent, or cut", sorted(strange))
    yield from misplaced(ledger, at, set(here), set(dead), moves_at_once=moves_at_once)


def misplaced(
    ledger: Ledger, at: int, here: set[str], dead: set[str], *, moves_at_once: bool
) -> Iterator[Offence]:
    """The messages that are not where what clients were told until ``at`` lets them be."""
    found: dict[str, list[tuple[str, int | None]]] = {}
    for body, history in ledger.histories.items():
        place = _place(body in here, body in dead)
        undone = _undone(history, place, at, moves_at_once)
        if undone != 0:
            found.setdefault(f"{history[-1][1].value}, and {place.value}", []).append((body, undone))
    for what, bodies in found.items():
        times = [undone for _, undone in bodies if undone is not None]
        longest = max(times) if len(times) == len(bodies) else None
        yield from _named(what, [body for body, _ in bodies], longest)


def _place(here: bool, dead: bool) -> Place:
    if here:
        return Place.BOTH if dead else Place.HERE
    return Place.DEAD if dead else Place.NOWHERE


def _undone(history: list[tuple[int, Fate]], place: Place, at: int, moves_at_once: bool) -> int | None:
    """Return how far before the cut the last moment is at which a message may have been there; None: never."""
    until = at
    for told, fate in reversed(history):
        if place in _PLACES[fate] or (place is Place.BOTH and fate is Fate.DYING and not moves_at_once):
            return at - until
        until = told
    return None


def _drain(client: shardq.Client, name: str) -> Counter[str]:
    queue, found = client.queue(name), Counter[str]()
    until = time.monotonic() + _LATE_SECONDS
    with queue.consumer() as consumer:
        while True:
            while messages := consumer.receive(1000):
                found.update(message.raw.decode() for message in messages)
                queue.ack(message.receipt for message in messages)
            counts = queue.counts()
            left = counts.ready + counts.delayed + counts.in_flight
            if not left or time.monotonic() > until:
                break
            time.sleep(0.5)
    if left:
        found["counted and not delivered"] += left
    return found


def _whole(body: str) -> bool:
    name, _, rest = body.partition(".")
    number = rest.partition(".")[0]
    return number.isdecimal() and body == body_of(name, int(number))


def _named(what: str, bodies: Sequence[str], undone: int | None = None) -> Iterator[Offence]:
    if bodies:
        first = min(bodies).rpartition(".")[0] or min(bodies)
        yield Offence(f"{what}: {len(bodies)} messages, {first} first", undone)
