"""The PostgreSQL store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar

from shardq.base.clock import Clock
from shardq.base.shard import Shard
from shardq.errors import SchemaMismatch, ShardqError
from shardq.storage.abilities import Settle
from shardq.storage.clocks import ServerClock
from shardq.storage.listening import Listener
from shardq.storage.postgresql import (
    bundles,
    claims,
    consumers,
    diagnosis,
    directory,
    peeking,
    probing,
    queues,
    removal,
    settling,
)
from shardq.storage.postgresql.connections import Address
from shardq.storage.postgresql.dedupe import KeyMethods
from shardq.storage.postgresql.joined_transactions import JoinedSession, JoinedSignals, JoinedStore
from shardq.storage.postgresql.read_cursors import TOO_LATE, late_of
from shardq.storage.postgresql.session import POOL_SIZE, Session, clock_leads
from shardq.storage.postgresql.signals import Channel
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
from shardq.storage.signals import Signals
from shardq.storage.store import Capabilities
from shardq.storage.writing import after_a_write

__all__ = ["PostgresStore"]


class PostgresStore(KeyMethods):
    """Queues in one schema of a database.

    Appends, acks and removals are as durable as the server's ``synchronous_commit`` makes them when they return. A
    power failure may undo the last claims, extensions and releases, which at most redelivers. Moments are the
    server's; stores with one ``clock`` agree on all of them. A closed store connects anew when used.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        forward_across_shards=True,
        settle_across_shards=True,
        max_message_bytes=64 * 1024 * 1024,
        max_shards=100_000,
        max_forward_bytes=32 << 20,
        requests_at_once=8,
        signals=True,
        groups=True,
        transactions=True,
        backup_tools="`pg_dump` and `pg_restore`, or `pg_basebackup`",
    )

    def __init__(self, address: Address, *, clock: Clock | None = None, pool_size: int = POOL_SIZE) -> None:
        # The clock asks by a separate session, as each request asks the clock.
        self._asking = Session(address, lambda: 0, pool_size=2)
        self._clock = clock or ServerClock(partial(clock_leads, self._asking))
        carried_on = self._clock.carried_on if isinstance(self._clock, ServerClock) else None
        self.session = Session(address, self._clock.now, pool_size, carried_on=carried_on)
        self.channel = Channel(self.session, address)
        self.signals: Signals = Signals(self.channel)
        self._address = address
        self._claims = claims.Claims()
        self._tidied = 0

    def within(self, connection: object) -> JoinedStore:
        """Return this store in the transaction that is under way on a psycopg connection of the application."""
        joined = PostgresStore(self._address, clock=self._clock)
        joined.session = session = JoinedSession(self.session, connection)
        joined.signals = JoinedSignals(self.signals, self.channel, session)
        return JoinedStore(joined)

    def now(self) -> int:
        """Return the server's time, as measured."""
        return self._clock.now()

    def close(self) -> None:
        """Close every connection of this process."""
        self.signals.close()
        self.session.close()
        self._asking.close()

    def ping(self) -> None:
        """Ask the server for an answer."""
        self.session.ping()

    # -- schema, queues ------------------------------------------------------------------------------------

    def create_schema(self) -> None:
        """Apply what is missing of ``schema/postgresql/``."""
        self.session.apply_schema()

    def diagnose(self) -> tuple[Finding, ...]:
        """Return facts about the server, its settings and the tables."""
        return diagnosis.diagnose(self.session, self._address)

    def create_queue(self, record: QueueRecord) -> bool:
        """Store a new queue, with the schema if it is missing; False when the name is taken."""
        self.create_schema()
        return self.session.write(queues.create, record)

    def load_queue(self, name: str) -> QueueRecord | None:
        """Return the queue's record, or None."""
        return self.session.read(queues.load, name, self._address)

    def update_queue(self, record: QueueRecord) -> bool:
        """Replace the record of the version before; False when that is not the stored one."""
        return self.session.write(queues.update, record)

    def list_queues(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names that start with the prefix, sorted."""
        try:
            return self.session.read(queues.listing, prefix)
        except SchemaMismatch as error:
            if error.missing:
                return ()
            raise

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        """Remove the queue, then what it holds. If this process ends before, a sweep of any queue removes the rest."""
        shards = self.session.write(removal.drop, name, seen)
        if shards is None:
            return False
        with after_a_write():
            for shard_key in shards:
                while self.session.write(removal.drop_rows, shard_key, durable=False):
                    pass
        self.signals.announce(name)
        return True

    # -- shards --------------------------------------------------------------------------------------------

    def create_shards(self, shards: Sequence[Shard]) -> None:
        """Do nothing: a shard is rows of tables that are there."""

    def shards(self, queue: str) -> tuple[Shard, ...]:
        """Return the shard directory, sorted."""
        return self.session.read(directory.listing, queue)

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        """Return what each of the shards has to offer, in one query of 20 seeks for each."""
        if deep:
            removal.show_hidden(self.session, shards)
        return self.session.read(probing.probe, shards, self.now(), glance)

    def drop_if_empty(self, shard: Shard) -> bool:
        """Take the shard out of the directory if it holds nothing, history included."""
        return self.session.write(directory.drop_empty, shard, durable=False)

    def append(self, request: Append) -> None:
        """Store the bundles that are not known yet, all or none."""
        is_alone = request.fresh and not request.shard.is_grouped
        awaited = None
        if is_alone:
            waiting = self.channel.waiting if self.session.is_own else (None, None)
            awaited = self.session.statement(bundles.append_at_once, request, waiting)
        with after_a_write(lambda: awaited is not None):
            # A repetition lets claims find what was stored too late.
            if awaited is None or late_of(request.bundles, self.now(), TOO_LATE):
                self.session.write(bundles.append, request)
                awaited = True
        self.signals.announce(request.shard.queue, elsewhere=awaited)

    def claim(self, request: Claim) -> Claimed:
        """Take messages in one statement as a rule; long data is read after it."""
        taken = self._claims.take(self.session, request)
        with after_a_write():
            return self._claims.read(self.session, request.shard, taken)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish messages that are still held."""
        fenced = Fenced()
        if not (settling.is_plain(request) and self.session.statement(settling.delete_at_once, request)):
            fenced = self.session.write(settling.acknowledge_in_steps, request, briefly=True)
        self._settled(request)
        return fenced

    def extend(self, request: Extend) -> Fenced:
        """Hide messages that are still held until now + lease."""
        durable = settling.is_durable(request)
        return self.session.write(settling.extend, request, durable=durable, briefly=True)

    def release(self, request: Release) -> Fenced:
        """Release messages that are still held."""
        fenced = self.session.write(settling.release, request, durable=False, briefly=True)
        self._settled(request)
        return fenced

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one transaction, between any two shards of the database."""
        fenced = self.session.write(settling.forward, request, briefly=True)
        self._settled(request)
        return fenced

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        """Carry out all of the requests in one transaction."""
        durable = any(map(settling.is_durable, requests))
        fenced = self.session.write(settling.settle, requests, durable=durable, briefly=True)
        self._settled(*requests)
        return fenced

    def peek(self, request: Peek) -> PeekPage:
        """Read one page of slices, in delivery order; the cursor is a place, so nothing shifts between pages."""
        return self.session.read(peeking.peek, request, self.now())

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, in the history too, or None."""
        return self.find_many(shard, [(bundle_id, position)])[0]

    def find_many(self, shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        """Return the slices that hold these messages, as one statement sees them."""
        return self.session.read(peeking.find_many, shard, places, self.now())

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message, out of the history too; False when it is not stored."""
        is_gone = self.session.write(removal.remove, shard, bundle_id, position)
        if shard.is_grouped:
            self.signals.announce(shard.queue)
        return is_gone

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard, a thousand slices at a time; returns how many they were."""
        messages = self.session.write(removal.purge, shard)
        with after_a_write(lambda: messages):
            while more := self.session.write(removal.purge, shard):
                messages += more
        return messages

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        """Count messages by state.

        The cost grows with the number of slices, with ``sizes`` with the bytes of short ones.
        """
        return self.session.snapshot(peeking.count, shard, self.now(), sizes)

    def sweep(self, request: Sweep) -> int:
        """Remove up to 1,000 leftovers of each kind; returns how many."""
        return removal.sweep(self.session, request)

    # -- consumers, signals --------------------------------------------------------------------------------

    def register_consumer(self, queues: Sequence[str], consumer: str, lifetime: int) -> Registrations:
        """Count the consumer among the live ones of all these queues, in one statement."""
        return self.session.statement(consumers.register, queues, consumer, lifetime, self._address)

    def deregister_consumer(self, queue: str, consumer: str) -> None:
        """Count the consumer no longer."""
        self.session.write(consumers.deregister, queue, consumer, durable=False)

    def seen_consumers(self, queue: str) -> tuple[SeenConsumer, ...]:
        """Return the live consumers, and those that were live not long ago."""
        return self.session.read(consumers.seen, queue, self.now())

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Listen to appends and releases: here at once, by other processes within milliseconds."""
        return self.signals.listen(wake)

    def _settled(self, *requests: Settle) -> None:
        """Notify waiting clients of possible news; and once in a while empty a table of finished ids."""
        for queue in {_queue_of(each) for each in requests if settling.is_news(each)}:
            self.signals.announce(queue)
        with suppress(ShardqError):  # what was asked for is done
            period = bundles.period_of(self.now())
            if period != self._tidied and self.session.is_own:
                self._tidied = period
                removal.tidy(self.session)


def _queue_of(request: Settle) -> str:
    return request.append.shard.queue if isinstance(request, Forward) else request.shard.queue
