"""The SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Literal, TypeVar, TypeVarTuple, Unpack

from shardq.base.clock import Clock, SystemClock
from shardq.base.shard import Shard
from shardq.storage.abilities import SavedFile, Settle
from shardq.storage.listening import Listener
from shardq.storage.per_process import PerProcess
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
from shardq.storage.sqlite import (
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
from shardq.storage.sqlite.claims import Answers, Taken
from shardq.storage.sqlite.connections import SIGNAL
from shardq.storage.sqlite.copying import copy_file
from shardq.storage.sqlite.dedupe import KeyMethods
from shardq.storage.sqlite.joined_transactions import Commits, JoinedSession, JoinedSignals
from shardq.storage.sqlite.log import LOG
from shardq.storage.sqlite.session import Session, check_path, check_synchronous, check_timeout
from shardq.storage.sqlite.signals import Signals
from shardq.storage.sqlite.tables import check_prefix
from shardq.storage.store import Capabilities

__all__ = ["SqliteStore"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SqliteStore(KeyMethods):
    """Queues in one SQLite file, for the threads and processes of one machine.

    The file is made by :meth:`create_schema` and :meth:`create_queue`; until then everything reads as empty. Appends,
    acks and removals are on the disk when they return. A power failure may undo the last claims, extensions and
    releases, which at most redelivers. With ``synchronous="normal"`` it may undo the last appends and acks too; the
    end of a process never undoes anything. ``busy_timeout`` is how many seconds to wait for other processes' locks.
    With ``tables`` the file is the database of an application, where the names of the tables begin so: `SharedStore`.

    A closed store can be used again: it opens new connections.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        forward_across_shards=True,
        settle_across_shards=True,
        max_message_bytes=64 * 1024 * 1024,
        max_shards=100_000,
        max_forward_bytes=32 << 20,
        signals=True,
        groups=True,
        transactions=True,
        backup_tools="",
    )

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        synchronous: Literal["full", "normal"] = "full",
        busy_timeout: float = 10.0,
        tables: str = "",
    ) -> None:
        self._clock = clock or SystemClock()
        self.now = self._clock.now  # as all processes on the file share the machine's clock
        self._synchronous = check_synchronous(synchronous)
        self.session = Session(
            check_path(path),
            self.now,
            durable=synchronous == "full",
            patience=check_timeout(busy_timeout),
            prefix=check_prefix(tables) if tables else "",
        )
        signal = SIGNAL if tables else LOG
        self.signals = Signals(self._numbers, self.session.path, signal)
        self.commits = Commits(partial(self.session.read, queues.state), self.session.path, signal)
        self._answers = PerProcess(Answers)

    def within(self, connection: object) -> SqliteStore:
        """Return this store in the transaction that is under way on a connection to its file."""
        prefix = self.session.prefix
        joined = SqliteStore(str(self.session.path), clock=self._clock, tables=prefix)
        joined.session = JoinedSession(connection, self.session.path, self.now, prefix)
        joined.signals = JoinedSignals(joined._numbers, self.session.path, self.commits)
        return joined

    def close(self) -> None:
        """Close every connection of this process."""
        self.commits.close()
        self.signals.close()
        self.session.close()

    def ping(self) -> None:
        """Read from the file if there is one; if not, there has to be a folder for it."""
        self.session.ping()

    def back_up(self, target: str, *, overwrite: bool = False) -> SavedFile:
        """Copy the file beside running clients. ``busy_timeout`` bounds the wait for those of a target that exists."""
        return copy_file(self.session.path, check_path(target), self.session.patience, overwrite=overwrite)

    def restore(self, backup: str) -> SavedFile:
        """Put a copy of the backup in the place of the file and its log. Closes the connections of this store."""
        self.close()
        return copy_file(
            check_path(backup), self.session.path, self.session.patience, overwrite=True, at_rest=True
        )

    def check_integrity(self, *, most_bytes: int) -> None:
        """Raise StoreUnavailable if the file is damaged, or empty. A file above ``most_bytes`` is not read."""
        self.session.check_integrity(most_bytes)

    # -- schema, queues ------------------------------------------------------------------------------------

    def create_schema(self) -> None:
        """Make the file if there is none, and apply the missing files of ``schema/sqlite/``."""
        self.session.apply_schema()

    def diagnose(self) -> tuple[Finding, ...]:
        """Return facts about the file; it is not made when it does not exist."""
        return diagnosis.diagnose(
            self.session.path, synchronous=self._synchronous, prefix=self.session.prefix
        )

    def create_queue(self, record: QueueRecord) -> bool:
        """Store a new queue, in a new file if there is none; False when the name is taken."""
        self.create_schema()
        return self._announced(lambda sql, _: queues.create(sql, record))

    def load_queue(self, name: str) -> QueueRecord | None:
        """Return the queue's record, or None."""
        return self.session.read(lambda sql: queues.load(sql, name))

    def update_queue(self, record: QueueRecord) -> bool:
        """Replace the record of the version before; False when that is not the stored one."""
        return self.session.write(lambda sql, _: queues.update(sql, record))

    def list_queues(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names that start with the prefix, sorted."""
        return self.session.read(lambda sql: queues.listing(sql, prefix))

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        """Remove the queue with all that it holds, in one transaction; False when there is none such."""
        return self._announced(lambda sql, _: removal.drop(sql, name, seen))

    # -- shards --------------------------------------------------------------------------------------------

    def create_shards(self, shards: Sequence[Shard]) -> None:
        """Do nothing: a shard is rows of tables that are there."""

    def shards(self, queue: str) -> tuple[Shard, ...]:
        """Return the shard directory, sorted."""
        return self.session.read(lambda sql: directory.listing(sql, queue))

    def probe(
        self,
        shards: Sequence[Shard],
        *,
        glance: bool = False,  # noqa: ARG002 -- costs no less
        deep: bool = False,  # noqa: ARG002 -- goes by no hint
    ) -> tuple[Probe, ...]:
        """Return what each of the shards has to offer, in one query of 20 seeks for each."""
        return self.session.read(lambda sql: probing.probe(sql, shards, self.now()))

    def drop_if_empty(self, shard: Shard) -> bool:
        """Take the shard out of the directory if it holds nothing, history included."""
        return self.session.write(lambda sql, _: directory.drop_empty(sql, shard), durable=False)

    def append(self, request: Append) -> None:
        """Store the bundles that are not known yet, all or none."""
        self.session.write(bundles.append, request)
        self.signals.announce()

    def claim(self, request: Claim) -> Claimed:
        """Take messages in one transaction, or finish them in it; long data is then read beside other writers."""
        if request.finish is None or request.shard.is_grouped:
            taken: Claimed | Taken = self.session.write(claims.take, request, durable=False)
        else:
            answers = self._answers.known or self._answers.get()
            ended = partial(answers.end, request.token, stored=True)
            taken = self.session.write(claims.finish, request, answers, committed=ended)
        if isinstance(taken, Claimed):
            return taken
        if taken.is_whole:
            return taken.claimed(request.lease)
        return self.session.read(partial(claims.read, request=request, taken=taken))

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish messages that are still held."""
        fenced = self.session.write(settling.acknowledge, request)
        if request.shard.is_grouped:
            self.signals.announce()
        return fenced

    def extend(self, request: Extend) -> Fenced:
        """Hide messages that are still held until now + lease."""
        return self.session.write(settling.extend, request, durable=settling.is_durable(request))

    def release(self, request: Release) -> Fenced:
        """Release messages that are still held."""
        return self._announced(settling.release, request, durable=False)

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one transaction, between any two shards of the file."""
        return self._announced(settling.forward, request)

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        """Carry out all of the requests in one transaction."""
        durable = any(map(settling.is_durable, requests))
        news = any(map(settling.is_news, requests))
        return self._announced(settling.settle, requests, durable=durable, news=news)

    def peek(self, request: Peek) -> PeekPage:
        """Read one page of slices, in delivery order; the cursor is a place, so nothing shifts between pages."""
        return self.session.read(lambda sql: peeking.peek(sql, request, self.now()))

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, in the history too, or None."""
        return self.find_many(shard, [(bundle_id, position)])[0]

    def find_many(self, shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        """Return the slices that hold these messages, as one transaction sees them."""
        return self.session.read(lambda sql: peeking.find_many(sql, shard, places, self.now()))

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message, out of the history too; False when it is not stored."""
        return self._announced(removal.remove, shard, bundle_id, position, news=shard.is_grouped)

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard in one transaction; returns how many they were."""
        return self.session.write(removal.purge, shard)

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        """Count messages by state.

        The cost grows with the number of slices, with ``sizes`` with the bytes of short ones.
        """
        return self.session.read(lambda sql: peeking.count(sql, shard, self.now(), sizes=sizes))

    def sweep(self, request: Sweep) -> int:
        """Remove up to 1,000 leftovers of each kind; returns how many."""
        return self.session.write(removal.sweep, request, durable=False)

    # -- consumers, signals --------------------------------------------------------------------------------

    def register_consumer(self, queues: Sequence[str], consumer: str, lifetime: int) -> Registrations:
        """Count the consumer among the live ones of all these queues, in one transaction."""
        if self.session.identity() is None:
            return (None,) * len(queues)
        return self.session.write(consumers.register, queues, consumer, lifetime, durable=False)

    def deregister_consumer(self, queue: str, consumer: str) -> None:
        """Count the consumer no longer."""
        self.session.write(lambda sql, _: consumers.deregister(sql, queue, consumer), durable=False)

    def seen_consumers(self, queue: str) -> tuple[SeenConsumer, ...]:
        """Return the live consumers, and those that were live not long ago."""
        if self.session.identity() is None:
            return ()
        return self.session.read(lambda sql: consumers.seen(sql, queue, self.now()))

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Listen to appends and releases: here at once, by other processes within 50 ms."""
        return self.signals.listen(wake)

    def _announced(
        self,
        change: Callable[[sqlite3.Connection, Unpack[Ts], int], T],
        *args: *Ts,
        durable: bool = True,
        news: bool = True,
    ) -> T:
        """Make a change, and notify waiting consumers when it may be news."""
        result = self.session.write(change, *args, durable=durable)
        if news:
            self.signals.announce()
        return result

    def _numbers(self, names: Sequence[str]) -> dict[str, int]:
        if self.session.identity() is None:
            return {}
        return self.session.read(lambda sql: queues.signals(sql, names))
