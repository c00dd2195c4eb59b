"""The records that a store keeps of a queue and its consumers."""

from __future__ import annotations

import os
from typing import TypeAlias

import msgspec

from shardq.base.shard import Shard

__all__ = ["REMEMBERED", "QueueRecord", "Registration", "Registrations", "SeenConsumer", "latest_end"]

REMEMBERED = 12 * 3600 * 1_000_000
"""For how long a consumer is known that is live no longer and did not deregister: it may still hold messages."""


def latest_end(now: int, lifetime: int) -> int:
    """Return the latest end of a registration that counts. A later one was made while the clock was ahead."""
    return now + 2 * lifetime


class SeenConsumer(msgspec.Struct, frozen=True, order=True):
    """A consumer of a queue that did not deregister."""

    consumer: str
    until: int  # it is live before this moment


class QueueRecord(msgspec.Struct, frozen=True):
    """A queue as the store knows it: a name, its settings as opaque bytes, and their version, 1 or more."""

    name: str
    settings: bytes
    version: int

    @classmethod
    def new(cls, name: str, settings: bytes) -> QueueRecord:
        """Make the record of a queue to be created. No change of an earlier queue of the name fits its version."""
        first = 1 + int.from_bytes(os.urandom(4), "big") % 2**30  # as many changes again fit into 32 bits
        return cls(name, settings, first)


class Registration(msgspec.Struct, frozen=True):
    """The facts about a queue that a consumer gets when it is registered."""

    record: QueueRecord
    consumers: tuple[str, ...]  # the live ones, sorted
    shards: tuple[Shard, ...]  # the shard directory


Registrations: TypeAlias = tuple[Registration | None, ...]
"""Of a consumer in several queues, in their order: None for a queue that does not exist."""
