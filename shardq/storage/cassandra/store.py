"""The Cassandra store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from shardq.clock import microseconds
from shardq.sharding.shard import Shard
from shardq.storage.cassandra import (
    bundles,
    claims,
    clock,
    consumers,
    dedupe,
    diagnosis,
    directory,
    looking,
    probing,
    queues,
    removal,
    schema,
    settling,
    signals,
    sweeping,
)
from shardq.storage.cassandra.address import Address
from shardq.storage.cassandra.held import Held
from shardq.storage.cassandra.reading import WideRow
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.sight import Sights
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
from shardq.storage.store import Capabilities

__all__ = ["CassandraStore"]


class CassandraStore:
    """Queues in one keyspace of a Cassandra cluster.

    Each shard is one wide row. Sends are plain writes that can be repeated; everything else that changes a shard
    is one conditional batch. Moments are those of the cluster's clock. A closed store can be used again: it
    connects anew.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        forward_across_shards=False,
        max_message_bytes=4 * 1024 * 1024,
        max_shards=10_000,
        appends_at_once=8,
    )

    def __init__(self, address: Address) -> None:
        self._session = Session(address)
        self._clock = ServerClock(partial(clock.lead, self._session))
        self._sights, self._held = Sights(), Held()
        self._entered = directory.Entered()
        self._checked = False  # the schema, since the last connect

    def now(self) -> int:
        """Return the cluster's time, as measured."""
        return self._clock.now()

    def close(self) -> None:
        """Close the connections of this process."""
        self._checked = False
        self._session.close()

    # -- schema --------------------------------------------------------------------------------------------

    def create_schema(self) -> None:
        """Make the keyspace if there is none, and apply what is missing of ``schema/cassandra/``."""
        schema.apply(self._session)

    def diagnose(self) -> tuple[Finding, ...]:
        """Facts about the cluster and the schema."""
        return diagnosis.diagnose(self._session)

    # -- queues --------------------------------------------------------------------------------------------

    def create_queue(self, record: QueueRecord) -> bool:
        """Store a new queue; False when the name is taken."""
        self.create_schema()
        if queues.is_condemned(self._session, record.name):  # a drop crashed half way
            removal.drop(self._session, record.name, self.now)
        return queues.create(self._session, record)

    def load_queue(self, name: str) -> QueueRecord | None:
        """Return the queue's record, or None."""
        if not self._checked:
            schema.require_current(self._session)
            self._checked = True
        return queues.load(self._session, name)

    def update_queue(self, record: QueueRecord) -> bool:
        """Replace the record of the version before; False when that is not the stored one."""
        return queues.update(self._session, record)

    def list_queues(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names that start with the prefix, sorted."""
        return queues.listing(self._session, prefix)

    def drop_queue(self, name: str) -> bool:
        """Remove the queue with all that it holds; one that stopped half way is finished by the next."""
        self._entered.forget(name)
        return removal.drop(self._session, name, self.now)

    # -- the shards of a queue -----------------------------------------------------------------------------

    def prepare(self, shards: Sequence[Shard]) -> None:
        """Do nothing: a shard is rows of tables that are there."""

    def shards(self, queue: str) -> tuple[Shard, ...]:
        """Return the shard directory, sorted."""
        return directory.listing(self._session, queue)

    def probe(
        self,
        shards: Sequence[Shard],
        *,
        glance: bool = False,
        deep: bool = False,  # noqa: ARG002
    ) -> tuple[Probe, ...]:
        """Return what each of the shards has to offer: four requests for fifty shards, one for a glance at them."""
        return probing.probe(self._session, self._sights, shards, self.now(), glance=glance)

    def forget(self, shard: Shard) -> bool:
        """Announce that the shard is to go; take it out of the directory half a second later, if it is empty still."""
        if not looking.is_empty(self._row(shard), self.now()):
            return False
        since = directory.announce_leaving(self._session, shard, self.now())
        if since is None:
            return True
        noticed = self.now() >= since + microseconds(directory.NOTICE)
        if not noticed or not looking.is_empty(self._row(shard), self.now()):
            return False
        return directory.take_out(self._session, shard, since)

    # -- one shard -----------------------------------------------------------------------------------------

    def append(self, request: Append) -> None:
        """Store the bundles, each with one mutation at least; what was stored before stays as it is."""
        bundles.append(self._session, self._entered, request, self.now)
        signals.announce(request.shard.queue)

    def claim(self, request: Claim) -> Claimed:
        """Take messages with one look and one conditional batch."""
        return claims.claim(self._session, self._sights, self._held, request, self._clock)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish what is still held."""
        return settling.acknowledge(self._session, self._held, request, self.now)

    def extend(self, request: Extend) -> Fenced:
        """Hide what is still held until now + lease."""
        return settling.extend(self._session, self._held, request, self.now)

    def release(self, request: Release) -> Fenced:
        """Give back what is still held."""
        fenced = settling.release(self._session, self._held, request, self.now)
        signals.announce(request.shard.queue)
        return fenced

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one conditional batch, within a shard."""
        fenced = settling.forward(self._session, self._held, request, self.now)
        signals.announce(request.append.shard.queue)
        return fenced

    def peek(self, request: Peek) -> PeekPage:
        """One page of slices, in delivery order; the cursor is a place, so nothing shifts between pages."""
        return looking.peek(self._row(request.shard), request, self.now())

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, in the history too, or None."""
        return looking.find(self._row(shard), bundle_id, position, self.now())

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message, out of the history too; False when it is not stored."""
        return removal.remove(self._session, shard, bundle_id, position)

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard, some hundred at a time; returns how many they were."""
        return removal.purge(self._session, shard, self.now() + bundles.HEAD_START)

    def count(self, shard: Shard) -> ShardCounts:
        """Messages by state; the cost grows with the number of slices."""
        return looking.count(self._row(shard), self.now())

    def sweep(self, request: Sweep) -> int:
        """Give up history, up to 200 slices of each shard; returns how many."""
        return sweeping.sweep(self._session, request)

    # -- dedupe --------------------------------------------------------------------------------------------

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        """Reserve the keys that are free; raises QueueNotFound."""
        return dedupe.reserve(self._session, queue, entries, window, self.now())

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        """Mark the entries' messages as stored."""
        dedupe.confirm(self._session, queue, entries, self.now())

    # -- consumers -----------------------------------------------------------------------------------------

    def enlist(self, queue: str, consumer: str, lifetime: int) -> tuple[str, ...]:
        """Count the consumer among the live ones; raises QueueNotFound."""
        return consumers.enlist(self._session, queue, consumer, lifetime, self.now())

    def resign(self, queue: str, consumer: str) -> None:
        """Count the consumer no longer."""
        consumers.resign(self._session, queue, consumer)

    # -- signals -------------------------------------------------------------------------------------------

    def wait(self, queue: str, seconds: float) -> bool:
        """Sleep until this process appends or releases something; what others do is not told."""
        return signals.wait(queue, seconds)

    def _row(self, shard: Shard) -> WideRow:
        return WideRow(self._session, str(shard))
