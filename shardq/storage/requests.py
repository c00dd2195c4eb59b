"""The requests that a store gets, and its answers, as frozen values; and what stores differ in.

Moments and durations are integer microseconds, moments since 1970-01-01 UTC by the store's clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum

import msgspec

from shardq.base.clock import from_datetime
from shardq.base.outgoing_message import Bundle
from shardq.base.shard import Shard
from shardq.storage.bundles import decode_keys, expired, in_queue_since
from shardq.storage.records import QueueRecord

__all__ = [
    "BLOCKED",
    "BLOCKED_AFTER",
    "PENDING",
    "Acknowledge",
    "Append",
    "Bundle",
    "Capabilities",
    "Claim",
    "Claimed",
    "ClaimedSlice",
    "DedupeEntry",
    "EntryState",
    "Extend",
    "Fenced",
    "Finding",
    "Finish",
    "Forward",
    "Peek",
    "PeekPage",
    "Probe",
    "QueueRecord",
    "Release",
    "ShardCounts",
    "Span",
    "StoredSlice",
    "Sweep",
    "expired",
    "in_queue_since",
]

BLOCKED = b"shardq: blocked!"
"""The token under which messages are held that block their groups, whichever claim held them before."""

BLOCKED_AFTER = from_datetime(datetime(5000, 1, 1, tzinfo=UTC))
"""A store MAY keep the claim's token with a lease that ends later than this, as no other does, and show `BLOCKED`."""

PENDING = b"shardq: pending!"
"""The token by which a forward names a message that nobody holds.

A span of one message under it, the only one of its request, names a message in the shard to which is appended. That
message is not held, or its lease has expired. It MUST be lost if somebody holds it by then. A store that cannot do
that, or not for groups, MUST raise UnsupportedByStore with nothing changed.
"""

_NEVER = from_datetime(datetime(9000, 1, 1, tzinfo=UTC))


class EntryState(Enum):
    """The state of a slice of messages."""

    READY = "ready"  # for a consumer: its due time has come
    DELAYED = "delayed"  # for its due time
    IN_FLIGHT = "in_flight"  # for the ack of the consumer that holds it
    PROCESSED = "processed"  # for the end of the history's retention


class Append(msgspec.Struct, frozen=True):
    """Bundles to add to one shard. All appends of one id name the same shard, priority, due time, count and group."""

    shard: Shard
    bundles: tuple[Bundle, ...]
    fresh: bool = False  # their first attempt: a store without late requests MAY skip the read for their ids


class Finish(msgspec.Struct, frozen=True):
    """Which messages a claim may finish in the same step, as an ack would."""

    keep: bool = False  # keep them as processed, for the queue's history
    most_deliveries: int | None = None  # what was delivered more often, this time included, is only held
    since: int | None = None  # what came into the queue before this moment is only held
    now: int = 0  # what has expired by this moment is only held

    def covers(self, piece: ClaimedSlice) -> bool:
        """Return whether the slice may be finished; not in a bundle with keys, which are confirmed first."""
        keys = decode_keys(piece.bundle.data)
        return (
            keys is not None
            and keys.dedupe_keys is None
            and keys.move_key is None
            and keys.unique_key is None
            and keys.large is None
            and (self.most_deliveries is None or piece.deliveries <= self.most_deliveries)
            and not expired(piece.bundle, self.now, self.since)
        )


class Claim(msgspec.Struct, frozen=True):
    """A bulk read of one shard: up to ``limit`` messages, hidden from others for ``lease``."""

    shard: Shard
    token: bytes  # 16 bytes, unique to this claim; names it when it is repeated
    limit: int  # messages, 1 or more
    lease: int
    owner: str = ""  # who claims, for people who look
    started: bool = True  # False: nobody works on them yet: no delivery counts before `Extend.starts`
    finish: Finish | None = None  # what may be finished in the same step; None: everything is held


class ClaimedSlice(msgspec.Struct, frozen=True, gc=False):
    """Messages ``first`` .. ``first + count - 1`` of a bundle, now held under the claim's token."""

    bundle: Bundle
    first: int
    count: int
    deliveries: int  # this one included
    finished: bool = False  # by the claim itself, as `Claim.finish` allows: nobody holds it


class Claimed(msgspec.Struct, frozen=True):
    """The answer to a claim."""

    slices: tuple[ClaimedSlice, ...]
    lease_until: int
    contended: bool = False  # nothing was taken: other claims got ahead of this one each time it tried


class Span(msgspec.Struct, frozen=True, order=True, gc=False):
    """Neighbouring messages of one bundle that are held under one claim's token."""

    bundle_id: bytes
    first: int
    count: int
    token: bytes


class Fenced(msgspec.Struct, frozen=True):
    """The messages that an ack, extension or release did not touch; all others were done.

    ``lost`` is not held under the token any more: claimed again, released or moved. ``gone`` is not stored any more.
    """

    lost: tuple[Span, ...] = ()
    gone: tuple[Span, ...] = ()


class Acknowledge(msgspec.Struct, frozen=True):
    """Finish messages of one shard."""

    shard: Shard
    spans: tuple[Span, ...]
    keep: bool = False  # keep them as processed, for the queue's history
    moved: bool = False  # they are stored elsewhere now


class Extend(msgspec.Struct, frozen=True):
    """Hold messages of one shard for ``lease`` from now on."""

    shard: Shard
    spans: tuple[Span, ...]
    lease: int
    shorten: bool = True  # False: a lease that ends later stays as it is
    starts: bool = False  # count the delivery of what was claimed without `started`
    blocks: bool = (
        False  # under `BLOCKED`, without end; messages held behind them in their groups are released
    )

    def until(self, now: int) -> int:
        """Return when the lease ends that is to be stored."""
        return _NEVER if self.blocks else now + self.lease


class Release(msgspec.Struct, frozen=True):
    """Give messages of one shard back, to be delivered again after ``delay``."""

    shard: Shard
    spans: tuple[Span, ...]
    delay: int = 0
    started: bool = True  # False: this delivery does not count: nobody worked on them, or they are put off


class Forward(msgspec.Struct, frozen=True):
    """Finish messages of one shard and add bundles, in one atomic step."""

    acknowledge: Acknowledge
    append: Append
    in_place: bool = False  # bundle by bundle, they take the places in their groups of what the spans name


class Peek(msgspec.Struct, frozen=True):
    """Read slices of one shard without claiming them."""

    shard: Shard
    limit: int  # messages, 1 or more; the last slice may go beyond it
    after: bytes = b""  # the cursor of the page before
    processed: bool = False  # the history instead of pending messages
    since: int = 0  # of the history: processed at or after; of pending messages: due then, see `Store.peek`
    until: int = 2**62  # of the history: processed before; of pending messages: due before
    bodies: bool = True  # False: the bundles' data is not read from the storage, and is empty
    held: bool = False  # only what is in flight, in an order that its pages keep

    @property
    def of_period(self) -> bool:
        """True when only messages due within a time are asked for, or only messages that were processed then."""
        return (self.since, self.until) != (0, 2**62)


class StoredSlice(msgspec.Struct, frozen=True):
    """A slice as it is stored."""

    bundle: Bundle
    first: int
    count: int
    deliveries: int
    state: EntryState
    due: int  # READY, DELAYED: deliverable from; IN_FLIGHT: end of the lease; PROCESSED: when it was acked
    token: bytes | None = None  # of the claim that holds it, or BLOCKED; None: it is not IN_FLIGHT
    started: bool = True  # False: the delivery to who holds it does not count yet

    @property
    def blocks(self) -> bool:
        """True while it blocks its group, until it is redriven or removed."""
        return self.token == BLOCKED


class PeekPage(msgspec.Struct, frozen=True):
    """One page of slices, in delivery order (of the history: in the order of processing)."""

    slices: tuple[StoredSlice, ...]
    after: bytes  # the cursor of the next page; empty when this is the last


class Probe(msgspec.Struct, frozen=True):
    """The messages that a shard offers."""

    shard: Shard
    priority: int | None = None  # of the first message that can be claimed now; None: there is none
    due: int | None = None  # its due time
    next_due: int | None = None  # the earliest due time ahead, ends of leases included; None: there is none

    @property
    def empty(self) -> bool:
        """True when nothing waits in the shard, now or later."""
        return self.due is None and self.next_due is None


class ShardCounts(msgspec.Struct, frozen=True):
    """Messages of one shard by state."""

    ready: int = 0
    delayed: int = 0
    in_flight: int = 0
    processed: int = 0
    oldest: int | None = None  # when the oldest of those not processed was sent: it leaves out the history
    ready_since: int | None = None  # when the first that is deliverable became due: one of a group at most
    bytes: int | None = None
    """Of the data of what is ready or delayed, if asked for. A part of a bundle has its share, maybe rounded down."""


class Sweep(msgspec.Struct, frozen=True):
    """Remove orphans of crashed clients, history older than ``history_before``, expired keys and consumers."""

    queue: str
    history_before: int


class DedupeEntry(msgspec.Struct, frozen=True):
    """A dedupe key and the message that it stands for."""

    key: str
    message_id: str  # and what its sender has to remember of it; opaque to a store
    confirmed: bool = False  # the message is known to have been stored


class Capabilities(msgspec.Struct, frozen=True):
    """The abilities of a store beyond the MUSTs. Callers ask this, never for a store's name."""

    forward_across_shards: bool  # `forward` is atomic when source and target are different shards
    max_message_bytes: int  # the largest `max_message_bytes` that a queue on this store may have
    max_shards: int  # the largest number of time shards x concurrency shards of a queue
    # Of bundles that one `forward` may append. It MUST take one message, however large.
    max_forward_bytes: int = 4 << 20
    settle_across_shards: bool = False  # it settles in several shards in one step: `CrossShardStore.settle`
    requests_at_once: int = 1  # requests of a client that are worth having under way at the same time
    claims_beside_acks: bool = False  # a claim need not wait for an ack in the same shard that is under way
    signals: bool = (
        False  # listeners wake soon after an append by another process, so consumers need not poll
    )
    groups: bool = False  # bundles may have a group, whose order is kept
    transactions: bool = False  # it can be part of one of the application's: `TransactionalStore.within`
    claims: bool = True  # False only within such a transaction, where the store refuses to claim
    backup_tools: str = "the tools of its servers"  # that save and restore it; empty: `SavedStore` does

    def within_transaction(self) -> Capabilities:
        """Return those of a store within a transaction: none within it, no claims, and one request at a time."""
        return msgspec.structs.replace(
            self, transactions=False, requests_at_once=1, claims_beside_acks=False, claims=False
        )


class Finding(msgspec.Struct, frozen=True):
    """A line of a health check. A ``warning`` may be well; the remedy of a ``note`` may be out of reach."""

    name: str
    ok: bool
    value: str
    remedy: str = ""
    warning: bool = False
    note: bool = False
