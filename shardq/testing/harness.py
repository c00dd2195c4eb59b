"""The harness that the author of a store writes so that the conformance suite can run on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from shardq.base.shard import Shard
from shardq.storage.store import Store

__all__ = ["LASTING_KINDS", "ApplicationTransaction", "RawEntry", "RawQueue", "RawState", "StoreHarness"]

# Kinds of `raw_leftovers` that outlive messages.
LASTING_KINDS = frozenset({"finished", "moved", "shard", "dedupe", "consumer"})


class RawState(Enum):
    """The kind of a message's row, whatever the time is."""

    WAITING = "waiting"  # it carries no claim's token: sent or released
    HELD = "held"  # a timeout marker: it carries a claim's token, even when the lease has run out
    PROCESSED = "processed"  # kept for the history


class RawEntry(msgspec.Struct, frozen=True, order=True):
    """Messages ``first`` .. ``first + count - 1`` of a bundle, as the storage has them.

    How a store cuts its rows is its own affair: only the messages and their states are compared. A row that
    stands for messages of several bundles is given as several entries; messages acked on their own are not.
    """

    bundle_id: bytes
    first: int
    count: int
    state: RawState


class RawQueue(msgspec.Struct, frozen=True):
    """Everything that is stored for a queue, whatever directory or index names it."""

    entries: Mapping[Shard, Sequence[RawEntry]]
    bodies: Mapping[Shard, Sequence[bytes]]  # the ids of the bundles whose bodies are stored
    listed: frozenset[Shard]  # the shard directory
    strays: Sequence[str] = ()  # rows that belong to nothing, named by their reader

    @property
    def shards(self) -> list[Shard]:
        """Those in which something is stored, listed or not."""
        return sorted({shard for found in (self.entries, self.bodies) for shard in found if found[shard]})


class ApplicationTransaction(ABC):
    """A transaction of the application on a storage, on a separate connection.

    It uses what an application would, the storage's driver, and not the code under test.
    """

    connection: Any  # what an application gives to `Client.transaction`

    @abstractmethod
    def begin(self) -> None:
        """Begin again, after an end."""

    @abstractmethod
    def write(self) -> None:
        """Write a row of the application in the transaction."""

    @property
    @abstractmethod
    def written(self) -> bool:
        """Whether the row is there for others."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the transaction."""

    @abstractmethod
    def roll_back(self) -> None:
        """Roll the transaction back."""

    @abstractmethod
    def close(self) -> None:
        """Roll a transaction under way back, and close the connection."""


class StoreHarness(ABC):
    """Opens clients of one storage, moves its time, and reads it behind the store's back.

    The ``raw_`` methods MUST NOT use the code under test: they read the storage with a separate connection. One
    harness may serve many tests; each test makes queues with new names.
    """

    real_time: bool = False  # True: a server's: `advance` sleeps, tests of exact moments are skipped
    time_scale: float = 1.0  # what a second of a test lasts; about 0.05 where time is real
    late_requests: bool = True  # False: none comes after its client has given it up
    examples: int = 100  # how many histories the state machine tries

    @abstractmethod
    def open(self) -> Store:
        """Open a further client of the storage, independent of the others but for the clock."""

    def finish(self, store: Store) -> None:
        """Close a client that a test needs no more, or keep it for a later :meth:`open` where opening is slow."""
        store.close()

    def discard(self, store: Store, queues: Sequence[str]) -> None:
        """Drop queues that a test needs no more, or do so later where a drop is slow."""
        for queue in queues:
            store.drop_queue(queue)

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """Let the store's time pass: move a manual clock, or sleep."""

    @abstractmethod
    def raw_entries(self, shard: Shard) -> Sequence[RawEntry]:
        """Read every message stored in the shard, in any state."""

    @abstractmethod
    def raw_bundles(self, shard: Shard) -> int:
        """Count the values that carry bodies and are stored in the shard."""

    @abstractmethod
    def raw_leftovers(self, queue: str) -> Mapping[str, int]:
        """Count the rows of each kind that are stored for the queue, beside the queue's own record.

        The suite knows ``finished`` (ids remembered so that a repeated append is recognised), ``moved`` (messages that
        were finished because they are stored elsewhere), ``shard`` (the directory, locks included), ``dedupe`` and
        ``consumer``. Rows of other kinds (``entry``, ``bundle``, ``acked``, ...) count as leftovers once all messages
        are finished. A kind without rows may be missing.
        """

    @abstractmethod
    def raw_queue(self, queue: str) -> RawQueue:
        """Read everything that is stored for the queue, found by its rows, not by a directory or an index.

        No client is at work meanwhile. Rows that belong to nothing are given as strays.
        """

    def begin(self) -> ApplicationTransaction:
        """Begin a transaction of the application. Needed for a store whose ``capabilities`` have transactions."""
        raise NotImplementedError(
            "the store says that it can be part of transactions: let the harness begin one"
        )

    def raw_mislead(self, shard: Shard) -> bool:  # noqa: ARG002
        """Make every hint of the shard wrong: low watermarks, due index, listing. False when the store has none.

        Low watermarks, due indexes, summaries, and whether the directory lists the shard: all that a ``deep`` probe
        MUST NOT go by. Messages, leases and what is remembered of finished bundles stay as they are.
        """
        return False

    def open_empty(self) -> Store | None:
        """Open a client of another, new storage without a schema; None skips its tests."""
        return None

    def raw_newer_schema(self) -> bool:
        """Mark the storage of the last :meth:`open_empty` as of a later schema; False skips its tests."""
        return False
