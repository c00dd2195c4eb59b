"""The steps of a message's life, and what holds after each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from pymongo.database import Database

from shardq.sharding.shard import Shard
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Extend,
    Forward,
    Release,
    Span,
    Sweep,
)
from shardq.storage.store import Store

MINUTE = 60_000_000


class Given(NamedTuple):
    """Two bundles of three and five messages, of which four are held, and a bundle to forward."""

    bundles: tuple[Bundle, Bundle]
    new: Bundle
    token: bytes

    @property
    def spans(self) -> tuple[Span, ...]:
        first, second = self.bundles
        return (Span(first.id, 0, 3, self.token), Span(second.id, 0, 1, self.token))


def forward(store: Store, shard: Shard, given: Given) -> object:
    return store.forward(Forward(Acknowledge(shard, given.spans), Append(shard, (given.new,))))


STEPS: dict[str, Callable[[Store, Shard, Given], object]] = {
    "append": lambda store, shard, given: store.append(Append(shard, given.bundles)),
    "claim": lambda store, shard, given: store.claim(Claim(shard, given.token, 4, MINUTE)),
    "acknowledge": lambda store, shard, given: store.acknowledge(Acknowledge(shard, given.spans)),
    "keep": lambda store, shard, given: store.acknowledge(Acknowledge(shard, given.spans, True)),
    "extend": lambda store, shard, given: store.extend(Extend(shard, given.spans, 2 * MINUTE)),
    "release": lambda store, shard, given: store.release(Release(shard, given.spans)),
    "forward": forward,
    "remove": lambda store, shard, given: store.remove(shard, given.bundles[0].id, 1),
    "purge": lambda store, shard, given: store.purge(shard),
}
EXPECTED = {  # ready, held and processed after the step
    "append": (8, 0, 0),
    "claim": (4, 4, 0),
    "acknowledge": (4, 0, 0),
    "keep": (4, 0, 4),
    "extend": (4, 4, 0),
    "release": (8, 0, 0),
    "forward": (6, 0, 0),
    "remove": (4, 3, 0),
    "purge": (0, 0, 0),
}


def prepare(step: str, store: Store, shard: Shard, given: Given) -> None:
    """Bring the shard to where the step starts."""
    if step != "append":
        STEPS["append"](store, shard, given)
    if step not in ("append", "claim"):
        STEPS["claim"](store, shard, given)


def counted(store: Store, shard: Shard) -> tuple[int, int, int]:
    """Ready, held and processed messages."""
    counts = store.count(shard)
    return counts.ready, counts.in_flight, counts.processed


def clear(store: Store, shard: Shard) -> None:
    """Remove everything."""
    store.purge(shard)
    while store.sweep(Sweep(shard.queue, store.now() + MINUTE)):
        pass


def let_intents_lapse(database: Database) -> None:
    """Let the time pass within which a forward without a transaction has to stand."""
    database["shardq.intent"].update_many({}, {"$set": {"until": datetime(2000, 1, 1, tzinfo=UTC)}})
