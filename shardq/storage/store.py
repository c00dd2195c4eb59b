"""The storage port: what a store must do for shardq.

A store appends, claims, acks, releases, extends, peeks and counts; it knows nothing of consumers, retries or
policies. Each method that takes a shard touches that shard only and is atomic: all of it happens, or nothing.

The words MUST and MAY are those of RFC 2119. Each MUST is a test in :mod:`shardq.testing.conformance`.

Rules for every method:

- It MUST be safe to call from several threads, and from a forked child, which opens other connections.
- It MUST be idempotent as described: the caller repeats a call after :class:`~shardq.StoreUnavailable` (nothing was
  changed) and :class:`~shardq.OutcomeUnknown` (it may have been). It MUST raise no other error for a temporary fault.
- It MUST never raise a driver's exception: that is the ``__cause__`` of one of shardq's own.
- It MUST build no statement out of data.
- A call that settles more than 2,000 spans MAY do so part after part. If it fails in between it MUST raise
  OutcomeUnknown.

Groups, where ``capabilities.groups``: every bundle of a shard that ``is_grouped`` has a group, and no other one has.

- The order of a group is that of its appends, whatever the ids, priorities and due times; then that of the positions.
- Deliverable is the first message of a group, when it is due and no lease on it runs. While its limit leaves room, a
  claim MUST take what follows, too, as far as it is due. Its answer has the messages of each group in order.
- The messages of a group that are held MUST be its front part, held by one claim. So a release also releases,
  uncounted and in their places, the messages that it leaves held behind. A claim that takes the front over takes all
  that was held from its holder.
- Removing the head of a group MUST make its successor deliverable in the same step, and wake listeners as an append
  does. Nothing of a group is left when its last message is gone, or when a sweep comes an hour later. No cost depends
  on the number of groups.
- A call that changes several groups MAY do so group after group. If it fails in between it MUST raise OutcomeUnknown.
- A probe MUST leave out messages that others are before. Counts and peeks show its own due time; `peek` has groups in
  order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from shardq.base.shard import Shard
from shardq.storage.keys import KeyRegister
from shardq.storage.listening import Listener
from shardq.storage.records import Registrations, SeenConsumer
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Capabilities,
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

__all__ = ["Capabilities", "Store"]


class Store(KeyRegister, Protocol):
    """One place where queues are kept."""

    @property
    def capabilities(self) -> Capabilities:
        """The abilities of this store beyond the MUSTs; MUST NOT need a connection."""

    def now(self) -> int:
        """Return the time of the store's clock.

        MUST agree with the clock that due times and leases are compared with.
        """

    def close(self) -> None:
        """Close every connection. A repeated close MUST do no harm."""

    def ping(self) -> None:
        """Ask the servers for an answer, or raise StoreUnavailable. MUST work without a schema, and change nothing."""

    def create_schema(self) -> None:
        """Apply every numbered file of ``schema/<store>/`` that is not applied yet.

        MUST be idempotent and safe for many clients at once. Raises SchemaMismatch when the store is newer
        than this client.
        """

    def diagnose(self) -> tuple[Finding, ...]:
        """Return facts about the store's health for ``shardq doctor``.

        MUST change nothing and MUST work without a schema.
        """

    def create_queue(self, record: QueueRecord) -> bool:
        """Store a new queue. False, and nothing changed, when the name is taken. Applies the schema first.

        MUST take every name that `check_queue_name` lets pass, and keep all of them apart, existing or not. MAY raise
        InvalidName for one of more than 100 characters.
        """

    def load_queue(self, name: str) -> QueueRecord | None:
        """Load the queue's record, or None. MUST raise SchemaMismatch when the schema is another version's.

        Where there is no schema yet it MUST answer None, or raise SchemaMismatch with ``missing``.
        """

    def update_queue(self, record: QueueRecord) -> bool:
        """Replace the record if the stored version is ``record.version - 1``; False, and nothing changed, if not."""

    def list_queues(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names that start with the prefix, sorted. MUST be none where there is no schema yet."""

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        """Remove the queue with all that it holds. False when there is none.

        With ``seen`` it MUST change nothing, and answer False, when the queue has another record.

        A client that still uses the queue afterwards MUST NOT bring any of it back. Its appends raise QueueNotFound;
        other calls do so too, or find nothing. A queue that is created again under the name is another incarnation.
        Nothing of the one before MUST appear in it, or prevent an append, whatever its bundle ids are, also while
        clients of the one before continue. A sweep removes leftovers of such clients.
        """

    # -- the shards of a queue ---------------------------------------------------------------------------------

    def create_shards(self, shards: Sequence[Shard]) -> None:
        """Make what these shards need before they are written; MAY do nothing.

        A shard that was not prepared MUST work too. Raises InvalidSetting, with nothing made, when the store cannot
        hold them beside those that it has.
        """

    def shards(self, queue: str) -> tuple[Shard, ...]:
        """Return the shard directory: MUST hold every shard that holds an entry, of any layout; MAY hold empty ones."""

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        """Return the offer of each of the shards, in their order. One request for all where the store can.

        With ``glance`` the answer MAY leave out messages that are due later, were claimed before, or were sent with a
        due time in the past. A ``next_due`` that is a minute ahead or more MAY be left out.

        The cost MUST NOT depend on the number of messages that wait or have been consumed.

        With ``deep`` it MUST ignore every hint: read cursors, low watermarks, due indexes, the directory. Messages
        that a hint hides MUST be in the answer, and every client's ordinary calls MUST find them from then on. The
        cost of a deep probe MAY depend on what was consumed since the last clean-up of the storage.
        """

    def drop_if_empty(self, shard: Shard) -> bool:
        """Take the shard out of the directory if it holds nothing, not even history; True when it is no longer listed.

        An append that runs at the same time MUST NOT be lost. For that reason the first call MAY return False for an
        empty shard, and a call some seconds later True.
        """

    # -- one shard ---------------------------------------------------------------------------------------------

    def append(self, request: Append) -> None:
        """Store the bundles, each as one ready slice that holds all of its messages.

        MUST be durable when it returns. A bundle whose id is stored, or was finished (acked, removed or purged) in the
        last 15 minutes, MUST be left alone. So a repeated append neither duplicates nor revives. It has the same data:
        what becomes of other data under one id is not defined. A ``fresh`` request names no such bundle: a store MAY do
        without that check, but not where an unanswered attempt may still run. All fields of a bundle MUST be in each
        slice that is answered, the data where it is asked for. A bundle that is given may be of a subclass: its further
        fields are its sender's, and a store MUST NOT keep them. MUST list the shard in the directory no later than its
        entries can be seen. Raises QueueNotFound when the queue does not exist.
        """

    def claim(self, request: Claim) -> Claimed:
        """Take up to ``limit`` deliverable messages under the token, ordered by (priority, due, bundle id, position).

        Deliverable are due messages: ready slices, released ones and those whose lease has run out. Each slice taken
        counts one more delivery and is hidden until now + lease. A slice larger than what is left of the limit MUST be
        split: the first messages are taken, the rest stays as it was.

        Without ``started`` the delivery is not counted yet, though the answer's ``deliveries`` has it: an
        extension that ``starts`` the slice counts it.

        Repeated with the same token, it MUST hold the same messages for a fresh lease, without counting another
        delivery. Messages that were acked, released, blocked or claimed by others since are left out. Only when there
        are none does it claim. A store MAY forget a claim 15 minutes after it began; messages that are held under its
        token stay so. The cost MUST NOT depend on the number of messages that wait or have been consumed.

        With ``finish`` it MAY finish what that covers, in the same step: the answer says of each slice whether it was
        ``finished``. That MUST be durable, and everything that an acknowledgement does. The rest is held, so a store
        that finishes nothing needs to do nothing. Repeated by the same client, with the same token and within the
        lease, it MUST answer what it finished before, and take nothing else. So nothing is lost when an answer is.
        """

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish messages that are still held under each span's token.

        Here and in every call that names a token, a lease that ran out still counts while no other claim has taken the
        messages.

        A bundle is deleted with its last message; with ``keep``, when the history gives up the last one. With
        ``moved``, and in ``forward``, what was finished MUST count as lost, not gone, in calls that name it within the
        next 15 minutes.
        """

    def extend(self, request: Extend) -> Fenced:
        """Hide messages that are still held under each span's token until now + lease.

        Without ``shorten`` a lease that ends later MUST stay as it is. With ``starts`` the delivery of slices that
        were claimed without ``started`` is counted: once, however often the call is repeated.

        With ``blocks``, in a shard of groups only, the messages MUST be held under `BLOCKED` from then on, without
        end. They MUST be lost to every other token, in a repetition too. Callers extend nothing under `BLOCKED`.
        Messages of a group that are held behind the first message that is not named MUST be released, as those behind
        a release are. A release of an earlier message of the group also releases a blocked one.
        """

    def release(self, request: Release) -> Fenced:
        """Release messages that are still held under each span's token, deliverable from now + delay.

        Without ``started`` the delivery MUST NOT count, by whatever it was counted. Messages that were never delivered
        then, and have no delay, take their old places in the order, by their bundle's due time.
        """

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one atomic step, or do nothing and return what is lost or gone.

        MUST work when both are in one shard. Across shards MAY raise UnsupportedByStore; see `capabilities`. With
        ``in_place`` each bundle MUST take the place of the messages that the same span names, and messages held behind
        are released. A span under `PENDING` names a message that nobody holds: see :mod:`shardq.storage.requests`.
        """

    def peek(self, request: Peek) -> PeekPage:
        """Read slices in delivery order, all states, without changing anything.

        SHOULD show messages that are stored all the while it reads, though a claim or a release moves them meanwhile.

        With ``since`` or ``until``, pending messages that are not due within that time MUST be left out, and messages
        that were never claimed MUST NOT. The cost MUST NOT depend on the number of other messages. Not asked of a
        shard of groups.

        Without ``bodies`` it MUST NOT hand over the bundles' data, and SHOULD NOT read it. Raises InvalidCursor when
        ``after`` cannot be a cursor of such a page.
        """

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Find the slice that holds this message, in any state, processed included, or None.

        MUST see changes that were answered before it began: a message that is stored all the while is found.
        """

    def find_many(self, shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        """Find each of these messages, by bundle id and position, as `find` does, in their order.

        One request for all where the store can. It reads the data of all their bundles, so the caller bounds how many.
        """

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message in any state, held and processed ones too. False when it is not stored."""

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard, held ones too, but not the history; returns how many they were.

        It MAY do so part after part. If it fails in between it MUST raise OutcomeUnknown, and when it is repeated it
        counts the rest.
        """

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        """Count messages by state; with ``sizes`` it MUST also have the ``bytes`` of ready and delayed ones.

        MUST NOT hand over bodies, nor read them without ``sizes``. A lease that ran out counts as ready, since its
        end. ``ready_since`` MUST leave out messages that wait behind the first message of their group.
        """

    def sweep(self, request: Sweep) -> int:
        """Remove leftovers, a bounded number at a time; returns how many things were removed.

        It MUST read everything that is stored for the queue without any hint, listed in the directory or not, as a
        ``deep`` probe does. It MUST also remove leftovers of the queue's earlier incarnations. It MAY leave messages
        that were written to one of them by a client that stood still for more than an hour within the call.
        """

    def register_consumer(self, queues: Sequence[str], consumer: str, lifetime: int) -> Registrations:
        """Count the consumer among the live ones of each queue until now + lifetime; None for one that does not exist.

        It MUST return the answers of `load_queue` and `shards`. One request for all where the store can. A consumer
        whose registration ends after `latest_end` MUST NOT be among the live ones: it may be dead for long.
        """

    def deregister_consumer(self, queue: str, consumer: str) -> None:
        """Count the consumer no longer among the live ones, and forget it."""

    def seen_consumers(self, queue: str) -> tuple[SeenConsumer, ...]:
        """Return every consumer of the queue that is registered, sorted; none for a queue that does not exist.

        It MUST include one that is live no longer for `REMEMBERED` from then on, unless it deregistered.
        """

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Return a listener for one receiver.

        News are that messages may have been appended to a queue, or released in it. Its ``news(queues)`` MUST return,
        in their order, the queues that have some since its last answer, and MAY return others. When there are none it
        listens until ``rest``. ``wake`` MUST be called at once when any thread of this process appends or releases
        messages in one of these queues. It SHOULD be called within 50 ms when another process does, and MAY be more
        often. After ``rest`` has returned it MUST NOT be called. Without such signals, consumers poll. ``wake`` takes
        no lock and returns at once.

        However many listen, they MUST share one thread and one connection of the client.
        """
