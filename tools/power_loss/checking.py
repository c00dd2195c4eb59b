"""What an image has to hold, checked with shardq itself."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import shardq

from .client import QUEUE, body_of
from .marks import Fate, Ledger

__all__ = ["check_integrity", "check_messages"]


def check_integrity(path: Path) -> Iterator[str]:
    """What is wrong with a file of SQLite."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path)) as file:
            answer = [row[0] for row in file.execute("PRAGMA integrity_check(3)")]
    except sqlite3.Error as error:
        answer = [str(error)]
    if answer != ["ok"]:
        yield f"corrupt: {answer}"


def check_messages(connect: Callable[[], shardq.Client], ledger: Ledger) -> Iterator[str]:
    """What is wrong with the messages, all of whose leases are over."""
    try:
        yield from _messages(connect, ledger)
    except shardq.ShardqError as error:
        yield f"unusable: {type(error).__name__}: {error}"


def _messages(connect: Callable[[], shardq.Client], ledger: Ledger) -> Iterator[str]:
    with connect() as client:
        waiting, dead = (
            _drain(client, name) if client.exists(name) else Counter() for name in (QUEUE, f"{QUEUE}.dead")
        )
        here, there = set(waiting), set(dead)
        yield from _named("lost", ledger.those(Fate.SENT) - here)
        yield from _named("a dead letter was lost", ledger.those(Fate.DEAD) - there)
        yield from _named("neither here nor dead", ledger.those(Fate.DYING) - here - there)
        yield from _named("acked, and back", ledger.those(Fate.ACKED) & (here | there))
        yield from _named("dead, and back", ledger.those(Fate.DEAD) & here)
        yield from _named("here and dead", here & there)
        yield from _named("dead without cause", there - ledger.those(Fate.DYING, Fate.DEAD))
        yield from _named("twice", {body for body, count in (waiting + dead).items() if count > 1})
        yield from _named("never sent, or cut", {body for body in here | there if not _whole(body)})


def _drain(client: shardq.Client, name: str) -> Counter[str]:
    queue, found = client.queue(name), Counter[str]()
    with queue.consumer() as consumer:
        while messages := consumer.receive(1000):
            found.update(message.raw.decode() for message in messages)
            for message in messages:
                message.ack()
    counts = queue.counts()
    left = counts.ready + counts.delayed + counts.in_flight
    if left:
        found["counted and not delivered"] += left
    return found


def _whole(body: str) -> bool:
    name, _, rest = body.partition(".")
    number = rest.partition(".")[0]
    return number.isdecimal() and body == body_of(name, int(number))


def _named(what: str, bodies: set[str]) -> Iterator[str]:
    if bodies:
        first = min(bodies).rpartition(".")[0] or min(bodies)
        yield f"{what}: {len(bodies)} messages, {first} first"
