"""Makes bundles whose ids sort in the order in which they were made."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

from shardq.base.clock import microseconds
from shardq.storage.bundles import BundleData, encode_bundle
from shardq.storage.requests import Bundle

__all__ = ["BundleFactory"]


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
