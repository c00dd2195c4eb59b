"""What a store keeps of the consumers of a queue."""

from __future__ import annotations

import msgspec

__all__ = ["REMEMBERED", "SeenConsumer"]

REMEMBERED = 12 * 3600 * 1_000_000
"""For how long a consumer is known that is live no longer and did not resign: it may still hold messages."""


class SeenConsumer(msgspec.Struct, frozen=True, order=True):
    """A consumer of a queue that did not resign."""

    consumer: str
    until: int  # it is live before this moment
