"""A queue of large bodies: each is read whole, or not found as somebody acked it, and no part of one stays."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from shardq.base.clock import SystemClock
from shardq.client import Client
from shardq.core.large.layout import BODIES
from shardq.storage.opening import open_store
from shardq.storage.store import Store
from shardq.testing import WrappedStore
from shardq.testing.audit import broken_rows, hidden, remains

from .defects import DEFECTS
from .history import Event, Phase
from .offence import SHOWN, Offence
from .stage import Stage
from .target import Target
from .waiting import wait_until_empty

__all__ = [
    "PART",
    "audit_films",
    "content_of",
    "create_films",
    "films_queue",
    "finish_films",
    "judge_films",
    "start_films",
]

SHARE = 100  # one large body there for so many messages in the queue under test
SENDERS, READERS = 1, 2
PART = 2_048  # bytes; so small that many are one of a few
MOST_PARTS = 8
LATER = 3 * 3_600_000_000  # microseconds; a body that nobody has is removed after two hours
OF_FILMS = ("film", "watch", "view", "watched", "pass")


def films_queue(queue: str) -> str:
    """The queue of large bodies beside a queue under test."""
    return f"{queue}.films"


def content_of(name: str) -> bytes:
    """The large body of a name; some are empty, and some end where a part does."""
    dice = random.Random(name)
    return dice.randbytes(dice.choice([0, PART, dice.randrange(PART * MOST_PARTS)]))


def create_films(client: Client, queue: str, lease: float) -> None:
    """Create the queue. Nothing is dead-lettered."""
    client.create_queue(
        films_queue(queue), shards=2, time_shards=2, visibility_timeout=lease, max_deliveries=None
    )


def start_films(stage: Stage, queue: str, messages: int, seconds: float) -> None:
    """Start the clients that send and read them."""
    name, count = films_queue(queue), max(1, messages // SHARE // SENDERS)
    for number in range(1, SENDERS + 1):
        stage.start("film", f"f{number}", queue=name, messages=count, rate=count / seconds)
    for number in range(1, READERS + 1):
        stage.start("watch", f"g{number}", queue=name)


def finish_films(stage: Stage, client: Client, queue: str, seconds: float) -> list[str]:
    """Let all be read, and the clients leave; tells of what is left."""
    problems = wait_until_empty(client.queue(films_queue(queue)), seconds)
    stage.end("watch")
    return problems


def audit_films(target: Target, queue: str, defect: str = "") -> list[str]:
    """Name what a sweep that comes hours later leaves of the bodies. No client may be at work, and no message left."""
    store: Store = open_store(target.url, SystemClock())
    if defect:
        store = DEFECTS[defect](store)
    with Client(_Later(store), retry_seconds=30) as client:
        if not client.exists(BODIES):
            return []
        raw = target.read(BODIES)
        found = broken_rows(raw) + hidden(raw, store)
        client.queue(films_queue(queue)).sweep()
        found += remains(target.read(BODIES))
    return [f"audit of large bodies: {each}" for each in found]


class _Later(WrappedStore):
    """A store some hours later."""

    def now(self) -> int:
        return super().now() + LATER


def judge_films(events: Sequence[Event]) -> list[Offence]:
    """Large bodies that were lost, cut, removed while their message was there, or stored twice."""
    about: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.verb in OF_FILMS:
            for name in {*event.bodies, *(each.body for each in event.deliveries)}:
                about[name].append(event)
    found: dict[str, list[str]] = defaultdict(list)
    for name, each in about.items():
        for promise in _broken(each, name):
            found[promise].append(name)
    return [
        Offence(promise, len(names), {name: tuple(about[name]) for name in names[:SHOWN]})
        for promise, names in found.items()
    ]


def _broken(events: Sequence[Event], name: str) -> Iterator[str]:
    """The promises that were broken to a large body."""
    sent = [event.phase for event in events if event.verb == "film"]
    views = [event for event in events if event.verb == "view" and event.phase is Phase.OK]
    if Phase.OK in sent and not any(view.note == "whole" for view in views):
        yield "large body lost"
    if views and (not sent or Phase.FAILED in sent):
        yield "large body of nobody"
    if any(view.note.startswith("cut") for view in views):
        yield "large body cut"
    acked = min((event.at for event in events if event.verb == "watched"), default=None)
    if any(view.note == "gone" and (acked is None or view.at < acked) for view in views):
        yield "large body gone before its message"
    ids = {each.id for event in events for each in event.deliveries if each.body == name}
    if len(ids) > 1 + sum(event.verb == "pass" and event.phase is Phase.INVOKE for event in events):
        yield "large body stored twice"
