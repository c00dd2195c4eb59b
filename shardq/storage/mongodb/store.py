"""The MongoDB store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import not_
from typing import TypeVar

from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.storage.clocks import ServerClock
from shardq.storage.listening import Listener
from shardq.storage.mongodb import (
    bundles,
    collections,
    consumers,
    diagnosis,
    directory,
    forwarding,
    peeking,
    probing,
    queues,
    removal,
    schema,
    settling,
)
from shardq.storage.mongodb.claims import Claims
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.dedupe import KeyMethods
from shardq.storage.mongodb.joined_transactions import JoinedStore
from shardq.storage.mongodb.queues import Incarnations
from shardq.storage.mongodb.session import Address
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.slicing import finds_nothing
from shardq.storage.records import Registrations, SeenConsumer
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    Claimed,
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
from shardq.storage.store import Capabilities

__all__ = ["MongoStore"]

R = TypeVar("R", Append, Claim, Acknowledge, Extend, Release)
T = TypeVar("T")


class MongoStore(KeyMethods):
    """Queues in one database, each shard a collection, each bundle a document, which changes in one atomic step.

    Moments are the primary's; stores with one ``clock`` agree on all of them. A closed store connects anew when used.
    """

    def __init__(self, address: Address, *, clock: ServerClock | None = None) -> None:
        self.client = Client(address, clock)
        self.session = self.client.session
        self.incarnations = Incarnations(self.session)
        self.claims = Claims(self.client)
        self.signals = self.client.signals
        self._joined = threading.local()  # what has joined the last transaction of each thread

    @property
    def capabilities(self) -> Capabilities:
        """The abilities of this store; a forward across shards and groups need the transactions of a replica set."""
        return Capabilities(
            forward_across_shards=self.session.has_transactions,
            max_message_bytes=15 << 20,
            max_shards=1_000,
            max_forward_bytes=4 << 20,  # the larger a transaction, the longer it is in the way of others
            requests_at_once=8,
            claims_beside_acks=True,
            signals=True,
            groups=self.session.has_transactions,
            transactions=self.session.has_transactions,
            backup_tools="snapshots of the primary's volume, or `mongodump --oplog` and `mongorestore --oplogReplay`",
        )

    def within(self, connection: object) -> JoinedStore:
        """Return this store in the transaction that is under way on a ClientSession of the application."""
        known: JoinedStore | None = getattr(self._joined, "store", None)
        if known is None or not known.is_of(connection):
            known = self._joined.store = JoinedStore(self, self.client, self.incarnations, connection)
        return known

    def now(self) -> int:
        """Return the primary's time, as measured."""
        return self.client.clock.now()

    def close(self) -> None:
        """Close the connections of this process."""
        self.signals.close()
        self.session.close()

    def ping(self) -> None:
        """Ask the primary who it is."""
        self.session.ping()

    # -- schema, queues ------------------------------------------------------------------------------------

    def create_schema(self) -> None:
        """Apply the missing files of ``schema/mongodb/``."""
        schema.apply(self.session)

    def diagnose(self) -> tuple[Finding, ...]:
        """Return facts about the servers and the schema."""
        return diagnosis.diagnose(self.session)

    def create_queue(self, record: QueueRecord) -> bool:
        """Store a new incarnation; False when the name is taken. Raises InvalidName if no collection can have it."""
        self.create_schema()
        self.incarnations.forget(record.name)
        if queues.is_condemned(self.session, record.name):  # a drop crashed half way
            removal.finish_drop(self.session, record.name)
        return queues.create(self.session, record)

    def load_queue(self, name: str) -> QueueRecord | None:
        """Return the queue's record, or None."""
        schema.require_current(self.session)
        return self.incarnations.load(name)

    def update_queue(self, record: QueueRecord) -> bool:
        """Replace the record of the version before; False when that is not the stored one."""
        return queues.update(self.session, record)

    def list_queues(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names that start with the prefix, sorted."""
        return queues.listing(self.session, prefix)

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        """Remove the queue and its collections; a drop that stopped half way is finished by the next."""
        self.incarnations.forget(name)
        return removal.drop(self.session, name, seen)

    # -- shards --------------------------------------------------------------------------------------------

    def create_shards(self, shards: Sequence[Shard]) -> None:
        """Note that the shards may be written. Their collections are made when they are first written."""
        collection_limit = self.client.collections.collection_limit
        for queue in {shard.queue for shard in shards}:
            name = self.incarnations.require(queue)
            wanted = [replace(shard, queue=name) for shard in shards if shard.queue == queue]
            collections.reserve(self.session, collection_limit, name, wanted)

    def shards(self, queue: str) -> tuple[Shard, ...]:
        """Return the shard directory, sorted."""
        listed = self.incarnations.within(queue, partial(directory.listing, self.session), in_vain=not_)
        return tuple(replace(shard, queue=queue) for shard in listed)

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        """Return what each of the shards has to offer, 50 of them in one command."""
        asked = {shard.queue for shard in shards}
        while True:
            names = self.incarnations.of_all(asked)
            probes, found = self._probe(shards, names, glance, deep)
            empty = {probe.shard.queue: names[probe.shard.queue] for probe in probes if probe.empty}
            if glance or not empty or not self.incarnations.have_changed(empty, found):
                return probes

    def _probe(
        self, shards: Sequence[Shard], names: Mapping[str, str], glance: bool, deep: bool
    ) -> tuple[tuple[Probe, ...], dict[str, str] | None]:
        places = [replace(shard, queue=names[shard.queue]) for shard in shards]
        seen = probing.probe(self.client, places, self.now(), names, glance=glance, deep=deep)
        probes = tuple(replace(probe, shard=shard) for probe, shard in zip(seen.probes, shards, strict=True))
        return probes, seen.called

    def drop_if_empty(self, shard: Shard) -> bool:
        """Close the shard for appends, check again whether it holds something, and take it out of the directory."""
        return self._within(shard, partial(directory.drop_empty, self.session, self.client.collections), bool)

    def append(self, request: Append) -> None:
        """Store the bundles, a document each; earlier ones stay as they are."""
        self._asked(request, partial(bundles.append, self.client), bool)
        self.signals.announce(request.shard.queue)

    def claim(self, request: Claim) -> Claimed:
        """Take messages with one read and one command."""
        return self._asked(request, self.claims.claim, lambda claimed: not claimed.slices)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish messages that are still held."""
        return self._asked(request, partial(settling.acknowledge, self.client), finds_nothing(request))

    def extend(self, request: Extend) -> Fenced:
        """Hide messages that are still held until now + lease."""
        return self._asked(request, partial(settling.extend, self.client), finds_nothing(request))

    def release(self, request: Release) -> Fenced:
        """Release messages that are still held."""
        fenced = self._asked(request, partial(settling.release, self.client), finds_nothing(request))
        self.signals.announce(request.shard.queue)
        return fenced

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one transaction; without a replica set within a shard only."""
        target = request.append.shard

        def forward(placed: Acknowledge) -> Fenced:
            return forwarding.forward(
                self.client,
                Forward(placed, replace(request.append, shard=self._place(target)), request.in_place),
            )

        fenced = self.incarnations.within(
            target.queue,
            lambda _: self._asked(request.acknowledge, forward, finds_nothing(request.acknowledge)),
            in_vain=lambda _: False,
        )
        self.signals.announce(target.queue)
        return fenced

    def peek(self, request: Peek) -> PeekPage:
        """Read one page of slices, in delivery order; the cursor is a place, so nothing shifts between pages."""
        return self._within(
            request.shard,
            lambda place: peeking.peek(ShardRows(self.session, place), request, self.now()),
            lambda page: not page.slices,
        )

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, in the history too, or None."""
        return self.find_many(shard, [(bundle_id, position)])[0]

    def find_many(self, shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        """Return the slices that hold these messages, which one command reads."""
        return self._within(
            shard,
            lambda place: peeking.find_many(ShardRows(self.session, place), places, self.now()),
            lambda found: None in found,
        )

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message, out of the history too; False when it is not stored."""
        return self._within(shard, lambda at: removal.remove(self.client, at, bundle_id, position), not_)

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard, a thousand bundles at a time; returns how many they were."""
        return self._within(shard, lambda place: removal.purge(self.client, place), not_)

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        """Count messages by state.

        The cost grows with the number of bundles, whose bodies the server reads for ``sizes``.
        """
        return self._within(
            shard,
            lambda place: peeking.count(ShardRows(self.session, place), self.now(), sizes=sizes),
            lambda counts: counts in (ShardCounts(), ShardCounts(bytes=0)),
        )

    def sweep(self, request: Sweep) -> int:
        """Remove expired history, keys and consumers, up to 1,000 of each kind; returns how many.

        Leftovers of the queue's earlier incarnations are removed, whether the queue exists or not.
        """
        return removal.sweep(self.client, self.incarnations, request)

    # -- consumers, signals --------------------------------------------------------------------------------

    def register_consumer(self, queues: Sequence[str], consumer: str, lifetime: int) -> Registrations:
        """Count the consumer among the live ones of all these queues, in two requests once they are known."""
        return consumers.register(self.session, self.incarnations, queues, consumer, lifetime, self.now())

    def deregister_consumer(self, queue: str, consumer: str) -> None:
        """Count the consumer no longer."""
        consumers.deregister(self.session, self.incarnations.of(queue), consumer)

    def seen_consumers(self, queue: str) -> tuple[SeenConsumer, ...]:
        """Return the live consumers, and those that were live not long ago."""
        return consumers.seen(self.session, self.incarnations.of(queue), self.now())

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Listen to appends and releases: here at once, by other processes within milliseconds."""
        return self.signals.listen(wake)

    def _place(self, shard: Shard) -> Shard:
        return replace(shard, queue=self.incarnations.of(shard.queue))

    def _asked(self, request: R, do: Callable[[R], T], in_vain: Callable[[T], bool]) -> T:
        """Do what is asked of a shard in that of the queue's present incarnation."""
        return self._within(request.shard, lambda place: do(replace(request, shard=place)), in_vain)

    def _within(self, shard: Shard, do: Callable[[Shard], T], in_vain: Callable[[T], bool]) -> T:
        """Do it in the shard of the queue's present incarnation."""
        return self.incarnations.within(
            shard.queue, lambda name: do(replace(shard, queue=name)), in_vain=in_vain
        )
