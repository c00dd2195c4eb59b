"""The steps of a message's life, and what holds after each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Claimed,
    Extend,
    Forward,
    Release,
    ShardCounts,
    Span,
    Sweep,
)
from shardq.storage.store import Store
from shardq.testing import BundleFactory

T = TypeVar("T")

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


def claim(store: Store, request: Claim) -> Claimed:
    """Claim, and again while other claims are in the way, as a session does whose connection broke a moment ago."""
    claimed = store.claim(request)
    while claimed.contended:
        claimed = store.claim(request)
    return claimed


def forward(store: Store, shard: Shard, given: Given) -> object:
    return store.forward(Forward(Acknowledge(shard, given.spans), Append(shard, (given.new,))))


STEPS: dict[str, Callable[[Store, Shard, Given], object]] = {
    "append": lambda store, shard, given: store.append(Append(shard, given.bundles)),
    "claim": lambda store, shard, given: claim(store, Claim(shard, given.token, 4, MINUTE)),
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


def prepared(step: str, store: Store, shard: Shard) -> Given:
    """Bring the shard to where the step starts."""
    make = BundleFactory(store.now)
    group = "a" if shard.is_grouped else ""
    given = Given((make(3, group=group), make(5, group=group)), make(2, group=group), os.urandom(16))
    if step != "append":
        STEPS["append"](store, shard, given)
    if step not in ("append", "claim"):
        STEPS["claim"](store, shard, given)
    return given


def persist(do: Callable[[], T]) -> T:
    """Repeat as every caller of a store does."""
    for _ in range(3):
        try:
            return do()
        except (OutcomeUnknown, StoreUnavailable) as error:
            assert error.retryable, error
    return do()


def counted(store: Store, shard: Shard) -> tuple[int, int, int]:
    """Ready, held and processed messages."""
    counts = store.count(shard)
    return counts.ready, counts.in_flight, counts.processed


def clear(store: Store, shard: Shard) -> None:
    """Remove everything."""
    store.purge(shard)
    while store.sweep(Sweep(shard.queue, store.now() + MINUTE)):
        pass
    assert store.count(shard) == ShardCounts()
