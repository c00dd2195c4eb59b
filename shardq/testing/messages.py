"""Bundles for tests, the messages that slices, spans and raw entries stand for, and the answers to claims.

They can be compared.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from shardq.base.clock import microseconds
from shardq.storage.bundles import BundleData, encode_bundle
from shardq.storage.requests import Bundle, Claimed, ClaimedSlice, Span
from shardq.testing.harness import RawEntry, RawState

__all__ = [
    "BundleFactory",
    "Message",
    "Taken",
    "of_bundle",
    "of_bundles",
    "of_entries",
    "of_slices",
    "of_spans",
]


class BundleFactory:
    """One producer's bundles. ``now`` is the clock of the store they go to.

    >>> make = BundleFactory(lambda: 5_000_000)
    >>> bundle = make(3, priority=2, delay=10)
    >>> bundle.count, bundle.priority, bundle.due, bundle.enqueued_at
    (3, 2, 15000000, 5000000)
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._numbers = itertools.count(1)
        self._producer = os.urandom(6)

    def __call__(
        self,
        count: int = 1,
        *,
        priority: int = 0,
        delay: float = 0,
        ttl: float | None = None,
        data: bytes | None = None,
        group: str = "",
    ) -> Bundle:
        """Make a new bundle of ``count`` messages, due ``delay`` seconds from now; it expires ``ttl`` after that."""
        now = self._now()
        bundle_id, due = self._id(now), now + microseconds(delay)
        return Bundle(
            id=bundle_id,
            priority=priority,
            due=due,
            enqueued_at=now,
            count=count,
            data=encode_bundle(BundleData([bundle_id] * count)) if data is None else data,
            expires_at=None if ttl is None else due + microseconds(ttl),
            group=group,
        )

    def _id(self, now: int) -> bytes:
        milliseconds = (now // 1000).to_bytes(6, "big")
        return milliseconds + next(self._numbers).to_bytes(4, "big") + self._producer


Message = tuple[bytes, int]  # a bundle's id and the position in it


class _Slice(Protocol):
    @property
    def bundle(self) -> Bundle: ...
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...


def of_slices(slices: Iterable[_Slice]) -> list[Message]:
    """Return the messages of claimed or stored slices, in their order."""
    return [(each.bundle.id, each.first + i) for each in slices for i in range(each.count)]


def of_spans(spans: Iterable[Span | RawEntry]) -> list[Message]:
    """Return the messages that spans stand for, in their order."""
    return [(span.bundle_id, span.first + i) for span in spans for i in range(span.count)]


def of_entries(entries: Iterable[RawEntry], *states: RawState) -> list[Message]:
    """Return the messages of the raw entries in one of the states, sorted."""
    return sorted(of_spans(entry for entry in entries if entry.state in states))


def of_bundle(bundle: Bundle, first: int = 0, count: int | None = None) -> list[Message]:
    """Return the messages of a bundle, or ``count`` of them from ``first`` on."""
    return [(bundle.id, first + i) for i in range(bundle.count - first if count is None else count)]


def of_bundles(*bundles: Bundle) -> list[Message]:
    """Return the messages of several bundles, in their order."""
    return [message for bundle in bundles for message in of_bundle(bundle)]


@dataclass(frozen=True, slots=True)
class Taken:
    """A claim's token and answer."""

    token: bytes
    claimed: Claimed

    @property
    def slices(self) -> tuple[ClaimedSlice, ...]:
        """The slices, in the order in which they were handed out."""
        return self.claimed.slices

    @property
    def messages(self) -> list[Message]:
        """The messages, in the order in which they were handed out."""
        return of_slices(self.slices)

    @property
    def deliveries(self) -> set[int]:
        """The delivery counts that occur."""
        return {each.deliveries for each in self.slices}

    @property
    def spans(self) -> tuple[Span, ...]:
        """Everything in it, for an ack, extension or release."""
        return tuple(Span(each.bundle.id, each.first, each.count, self.token) for each in self.slices)

    def span(self, first: int, count: int, *, of: int = 0) -> Span:
        """Return a span of ``count`` messages from ``first`` on, in the bundle of slice number ``of``."""
        return Span(self.slices[of].bundle.id, first, count, self.token)
