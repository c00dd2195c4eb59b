"""The Cassandra store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, TypeVar

import msgspec

from shardq.base.shard import Shard
from shardq.errors import QueueNotFound, SchemaMismatch
from shardq.storage.cassandra import (
    consumers,
    diagnosis,
    directory,
    probing,
    queues,
    removal,
    schema,
)
from shardq.storage.cassandra.connecting import Address
from shardq.storage.cassandra.dedupe import KeyMethods
from shardq.storage.cassandra.queues import Incarnations
from shardq.storage.cassandra.read_cursors import ReadCursors
from shardq.storage.cassandra.session import Session, clock_leads
from shardq.storage.cassandra.shards import GroupedShards, UngroupedShards
from shardq.storage.clocks import ServerClock
from shardq.storage.listening import Listener, of_process
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

__all__ = ["CassandraStore"]

R = TypeVar("R", Append, Claim, Acknowledge, Extend, Release, Peek)


class CassandraStore(KeyMethods):
    """Queues in one keyspace of a Cassandra cluster.

    Each shard is one wide row. Sends are plain writes that can be repeated; everything else that changes a shard
    is one conditional batch. Moments are those of the cluster's clock; stores that are given one ``clock`` agree on
    them. A closed store connects anew when used. Another ``session`` can delay, fail or count requests.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        forward_across_shards=False,
        max_message_bytes=4 << 20,
        max_shards=10_000,
        max_forward_bytes=4 << 20,  # a conditional batch is written twice: to Paxos and to the table
        requests_at_once=8,
        groups=True,
        backup_tools="`nodetool snapshot` of the keyspace on every node",
    )

    def __init__(
        self, address: Address, *, session: Session | None = None, clock: ServerClock | None = None
    ) -> None:
        self.session = session or Session(address)
        self.clock = clock or ServerClock(lambda _: clock_leads(self.session))
        self._cursors = ReadCursors()
        self.incarnations = Incarnations()
        self.listed, self.drops = directory.ListedShards(), directory.DropAnnouncements()
        ways = (self.session, self._cursors, self.listed, self.clock)
        self._ungrouped, self._grouped = UngroupedShards(*ways), GroupedShards(*ways)
        self._checked = False  # the schema, since the last connect

    def now(self) -> int:
        """Return the cluster's time, as measured."""
        return self.clock.now()

    def close(self) -> None:
        """Close the connections of this process."""
        self._checked = False
        self.session.close()

    def ping(self) -> None:
        """Ask a node who it is."""
        with self.session.unprepared() as driver:
            driver.execute("SELECT release_version FROM system.local")

    # -- schema --------------------------------------------------------------------------------------------

    def create_schema(self) -> None:
        """Make the keyspace if there is none, and apply the missing files of ``schema/cassandra/``."""
        schema.apply(self.session)

    def diagnose(self) -> tuple[Finding, ...]:
        """Return facts about the cluster and the schema."""
        return diagnosis.diagnose(self.session)

    # -- queues --------------------------------------------------------------------------------------------

    def create_queue(self, record: QueueRecord) -> bool:
        """Store a new queue, which is a new incarnation; False when the name is taken."""
        self.create_schema()
        condemned = queues.condemned(self.session, record.name)
        if condemned is not None:  # a drop crashed half way
            removal.finish_drop(self.session, record.name, condemned, self.now)
        incarnation = queues.create(self.session, record)
        if incarnation is not None:
            self.incarnations.saw(record.name, incarnation)
        return incarnation is not None

    def load_queue(self, name: str) -> QueueRecord | None:
        """Return the queue's record, or None."""
        self._check_schema()
        found = queues.load(self.session, name)
        if found is None:
            return None
        record, incarnation = found
        self.incarnations.saw(name, incarnation)
        return record

    def update_queue(self, record: QueueRecord) -> bool:
        """Replace the record of the version before; False when that is not the stored one."""
        return queues.update(self.session, record)

    def list_queues(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names that start with the prefix, sorted; none without a schema."""
        try:
            self._check_schema()  # the driver logs an error for what it cannot prepare
            return tuple(queues.listing(self.session, prefix))
        except SchemaMismatch as error:
            if error.missing:
                return ()
            raise

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        """Remove the queue with all that it holds; one that stopped half way is finished by the next."""
        self.listed.forget(name)
        self.incarnations.forget(name)
        return removal.drop(self.session, name, self.now, seen)

    # -- the shards of a queue -----------------------------------------------------------------------------

    def create_shards(self, shards: Sequence[Shard]) -> None:
        """Do nothing: a shard is rows of tables that are there."""

    def shards(self, queue: str) -> tuple[Shard, ...]:
        """Return the shard directory, sorted."""
        listed = directory.listing(self.session, self.incarnations.of(self.session, queue))
        return tuple(msgspec.structs.replace(shard, queue=queue) for shard in listed)

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        """Return what each of the shards has to offer: four requests for fifty shards, one for a glance at two hundred.

        A ``deep`` read lists what holds something and is not listed, with one request more for each queue.
        """
        names = {shard.queue for shard in shards}
        self.incarnations.refresh(self.session, names, glance=glance)
        called = {name: self.incarnations.of(self.session, name, glance=glance) for name in names}
        places = [Shard(called[shard.queue], shard.time_shard, shard.number) for shard in shards]
        probes = self._probe(places, glance=glance, deep=deep)
        return tuple(
            Probe(shard, probe.priority, probe.due, probe.next_due)
            for probe, shard in zip(probes, shards, strict=True)
        )

    def _probe(
        self, places: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        probes = probing.probe(self.session, self._cursors, places, self.now(), glance=glance, deep=deep)
        if deep:
            self.listed.heal(self.session, [probe.shard for probe in probes if not probe.empty])
        return probes

    def drop_if_empty(self, shard: Shard) -> bool:
        """Announce that the shard is to go; take it out of the directory half a second later, if it is empty still."""
        place, rows = self.place(shard), self._of(shard)
        if not rows.is_empty(place):
            return False
        announced = self.drops.announce(self.session, place)
        if announced is None:
            return True
        if not self.drops.is_noticed(place, announced) or not rows.is_empty(place):
            return False
        return self.drops.take_out(self.session, place, announced)

    # -- one shard -----------------------------------------------------------------------------------------

    def append(self, request: Append) -> None:
        """Store the bundles, each with one mutation at least; earlier ones stay as they are."""
        placed = self._placed(request)
        try:
            self._of(request.shard).append(placed)
        except QueueNotFound:  # or it was created again
            self.incarnations.forget(request.shard.queue)
            again = self._placed(request)
            if again == placed:
                raise
            self._of(request.shard).append(again)
        of_process.get().announce((request.shard.queue,))

    def claim(self, request: Claim) -> Claimed:
        """Take messages with one read and one conditional batch."""
        return self._of(request.shard).claim(self._placed(request))

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish messages that are still held."""
        return self._of(request.shard).acknowledge(self._placed(request))

    def extend(self, request: Extend) -> Fenced:
        """Hide messages that are still held until now + lease."""
        return self._of(request.shard).extend(self._placed(request))

    def release(self, request: Release) -> Fenced:
        """Release messages that are still held."""
        fenced = self._of(request.shard).release(self._placed(request))
        of_process.get().announce((request.shard.queue,))
        return fenced

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one conditional batch, within a shard."""
        placed = Forward(self._placed(request.acknowledge), self._placed(request.append), request.in_place)
        fenced = self._of(request.acknowledge.shard).forward(placed)
        of_process.get().announce((request.append.shard.queue,))
        return fenced

    def peek(self, request: Peek) -> PeekPage:
        """Read one page of slices, in delivery order; the cursor is a place, so nothing shifts between pages."""
        return self._of(request.shard).peek(self._placed(request))

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, in the history too, or None."""
        return self._of(shard).find(self.place(shard), bundle_id, position)

    def find_many(self, shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        """Return the slices that hold these messages, one after the other."""
        return tuple(self.find(shard, *each) for each in places)

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message, out of the history too; False when it is not stored."""
        return self._of(shard).remove(self.place(shard), bundle_id, position)

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard, some hundred at a time; returns how many they were."""
        return self._of(shard).purge(self.place(shard))

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        """Count messages by state; the cost grows with the number of slices."""
        return self._of(shard).count(self.place(shard), sizes=sizes)

    def sweep(self, request: Sweep) -> int:
        """Give up history, up to 200 slices of each shard, and finish drops that stopped half way, of any queue."""
        return removal.sweep(self.session, request, self.now, partial(self._probe, deep=True))

    # -- consumers -----------------------------------------------------------------------------------------

    def register_consumer(self, queues: Sequence[str], consumer: str, lifetime: int) -> Registrations:
        """Count the consumer among the live ones of each of these queues, all at the same time."""
        self._check_schema()
        return consumers.register(self.session, self.incarnations, queues, consumer, lifetime, self.now())

    def deregister_consumer(self, queue: str, consumer: str) -> None:
        """Count the consumer no longer."""
        consumers.deregister(self.session, self.incarnations.of(self.session, queue), consumer)

    def seen_consumers(self, queue: str) -> tuple[SeenConsumer, ...]:
        """Return the live consumers, and those that were live not long ago."""
        return consumers.seen(self.session, self.incarnations.of(self.session, queue), self.now())

    # -- signals -------------------------------------------------------------------------------------------

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Report appends and releases of this process. Those of other processes are not reported."""
        return of_process.get().listen(wake)

    def _check_schema(self) -> None:
        if not self._checked:
            schema.require_current(self.session)
            self._checked = True

    def place(self, shard: Shard) -> Shard:
        """Return the shard under the name of its queue in the tables."""
        return self.incarnations.place(self.session, shard)

    def _placed(self, request: R) -> R:
        """Return the request for the shard under what its queue is called in the tables."""
        return msgspec.structs.replace(request, shard=self.place(request.shard))

    def _of(self, shard: Shard) -> UngroupedShards | GroupedShards:
        return self._grouped if shard.is_grouped else self._ungrouped
