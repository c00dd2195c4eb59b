"""The MongoDB store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from shardq.sharding.shard import Shard
from shardq.storage.mongodb import (
    bundles,
    clock,
    collections,
    consumers,
    dedupe,
    deep_looks,
    diagnosis,
    directory,
    forwarding,
    looking,
    probing,
    queues,
    removal,
    schema,
    settling,
    sweeping,
)
from shardq.storage.mongodb.address import Address
from shardq.storage.mongodb.claims import Claims
from shardq.storage.mongodb.lookout import Lookout
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.signals import CappedCollection
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    Claimed,
    DedupeEntry,
    Extend,
    Fenced,
    Finding,
    Forward,
    Peek,
    PeekPage,
    Probe,
    QueueRecord,
    Release,
    ShardCounts,
    StoredSlice,
    Sweep,
)
from shardq.storage.server_clock import ServerClock
from shardq.storage.signals.signals import Signals
from shardq.storage.store import Capabilities

__all__ = ["MongoStore"]

_MIB = 1024 * 1024


class MongoStore:
    """Queues in one database, each shard a collection, each bundle a document.

    A bundle changes in one atomic step, on the condition that it is as it was seen. Moments are those of the
    primary's clock. A closed store can be used again: it connects anew.
    """

    def __init__(self, address: Address) -> None:
        self._session = Session(address)
        self._clock = ServerClock(partial(clock.leads, self._session))
        self._open = directory.Open(self._session)
        self._lookout = Lookout(self._session, self._clock)
        self._claims = Claims(self._session, self._clock, self._lookout)
        self._signals = Signals(CappedCollection(self._session))

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do; a forward across shards needs the transactions of a replica set."""
        return Capabilities(
            forward_across_shards=self._session.has_transactions,
            max_message_bytes=15 * _MIB,
            max_shards=1_000,
            appends_at_once=8,
            signals=True,
        )

    def now(self) -> int:
        """Return the primary's time, as measured."""
        return self._clock.now()

    def close(self) -> None:
        """Close the connections of this process."""
        self._signals.close()
        self._session.close()

    # -- schema --------------------------------------------------------------------------------------------

    def create_schema(self) -> None:
        """Make what is missing of ``schema/mongodb/``."""
        schema.apply(self._session)

    def diagnose(self) -> tuple[Finding, ...]:
        """Facts about the servers and the schema."""
        return diagnosis.diagnose(self._session)

    # -- queues --------------------------------------------------------------------------------------------

    def create_queue(self, record: QueueRecord) -> bool:
        """Store a new queue; False when the name is taken. Raises InvalidName for what no collection can be named."""
        self.create_schema()
        if queues.is_condemned(self._session, record.name):  # a drop crashed half way
            removal.drop(self._session, record.name)
        return queues.create(self._session, record)

    def load_queue(self, name: str) -> QueueRecord | None:
        """Return the queue's record, or None."""
        schema.require_current(self._session)
        return queues.load(self._session, name)

    def update_queue(self, record: QueueRecord) -> bool:
        """Replace the record of the version before; False when that is not the stored one."""
        return queues.update(self._session, record)

    def list_queues(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names that start with the prefix, sorted."""
        return queues.listing(self._session, prefix)

    def drop_queue(self, name: str) -> bool:
        """Remove the queue and its collections; a drop that stopped half way is finished by the next."""
        return removal.drop(self._session, name)

    # -- the shards of a queue -----------------------------------------------------------------------------

    def prepare(self, shards: Sequence[Shard]) -> None:
        """Make the collections of the shards, each with its indexes in one step. Raises InvalidSetting for too many."""
        collections.prepare(self._session, shards)

    def shards(self, queue: str) -> tuple[Shard, ...]:
        """Return the shard directory, sorted."""
        return directory.listing(self._session, queue)

    def probe(
        self,
        shards: Sequence[Shard],
        *,
        glance: bool = False,
        deep: bool = False,
    ) -> tuple[Probe, ...]:
        """Return what each of the shards has to offer, 50 of them in one command."""
        if deep:
            return deep_looks.look(self._session, self._lookout, shards, self.now()).probes
        return probing.probe(self._session, self._lookout, shards, self.now(), glance=glance)

    def forget(self, shard: Shard) -> bool:
        """Close the shard for appends, look again whether it holds something, and take it out of the directory."""
        self._open.is_not(shard)
        return directory.forget(self._session, shard)

    # -- one shard -----------------------------------------------------------------------------------------

    def append(self, request: Append) -> None:
        """Store the bundles, a document each; what was stored before stays as it is."""
        bundles.append(self._session, self._open, request)
        self._lookout.stored(request.shard, request.bundles)
        self._signals.announce(request.shard.queue)

    def claim(self, request: Claim) -> Claimed:
        """Take messages with one look and one command."""
        claimed = self._claims.claim(request)
        self._lookout.put_off(request.shard, claimed.lease_until)
        return claimed

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish what is still held."""
        return settling.acknowledge(self._session, request, self._clock)

    def extend(self, request: Extend) -> Fenced:
        """Hide what is still held until now + lease."""
        fenced = settling.extend(self._session, request, until := self._clock.now() + request.lease)
        self._lookout.put_off(request.shard, until)
        return fenced

    def release(self, request: Release) -> Fenced:
        """Give back what is still held."""
        fenced = settling.release(self._session, request, due := self._clock.now() + request.delay)
        self._lookout.put_off(request.shard, due)
        self._signals.announce(request.shard.queue)
        return fenced

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one transaction; without a replica set within a shard only."""
        fenced = forwarding.forward(self._session, self._open, request, self._clock)
        self._lookout.stored(request.append.shard, request.append.bundles)
        self._signals.announce(request.append.shard.queue)
        return fenced

    def peek(self, request: Peek) -> PeekPage:
        """One page of slices, in delivery order; the cursor is a place, so nothing shifts between pages."""
        return looking.peek(self._rows(request.shard), request, self.now())

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, in the history too, or None."""
        return looking.find(self._rows(shard), bundle_id, position, self.now())

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message, out of the history too; False when it is not stored."""
        return removal.remove(self._session, shard, bundle_id, position)

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard, a thousand bundles at a time; returns how many they were."""
        return removal.purge(self._session, shard)

    def count(self, shard: Shard) -> ShardCounts:
        """Messages by state; the cost grows with the number of bundles, whose bodies are not read."""
        return looking.count(self._rows(shard), self.now())

    def sweep(self, request: Sweep) -> int:
        """Give up history, keys and consumers that are over, up to 1,000 of each kind; returns how many."""
        return sweeping.sweep(self._session, self._open, self._lookout, request, self.now())

    # -- dedupe --------------------------------------------------------------------------------------------

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        """Reserve the keys that are free; raises QueueNotFound."""
        return dedupe.reserve(self._session, queue, entries, window, self.now())

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        """Mark the entries' messages as stored."""
        dedupe.confirm(self._session, queue, entries)

    # -- consumers -----------------------------------------------------------------------------------------

    def enlist(self, queue: str, consumer: str, lifetime: int) -> tuple[str, ...]:
        """Count the consumer among the live ones; raises QueueNotFound."""
        return consumers.enlist(self._session, queue, consumer, lifetime, self.now())

    def resign(self, queue: str, consumer: str) -> None:
        """Count the consumer no longer."""
        consumers.resign(self._session, queue, consumer)

    # -- signals -------------------------------------------------------------------------------------------

    def wait(self, queue: str, seconds: float) -> bool:
        """Sleep until something is appended or released: here at once, by other processes within milliseconds."""
        return self._signals.wait(queue, seconds)

    def _rows(self, shard: Shard) -> ShardRows:
        return ShardRows(self._session, shard)
