"""Where large bodies are stored: all of a store in one queue of shardq's own.

A body has an id. The bundles that begin with its first twelve bytes are its **parts**, numbered from 0, and its
**owners' entries**. An entry names a message that has the body, or is about to be stored with it. So a read of a shard
without bodies shows which parts belong together and how old they are. An entry is written once, however often.
"""

from __future__ import annotations

from hashlib import blake2b

from shardq.base.large_body import LargeBody
from shardq.base.receipt import MessageId
from shardq.base.shard import INTERNAL, Shard
from shardq.core.context.queue_context import QueueContext
from shardq.core.settings import QueueSettings
from shardq.errors import QueueNotFound
from shardq.storage.bundles import BundleData, decode_bundle, encode_bundle, made_at
from shardq.storage.requests import Bundle, QueueRecord, StoredSlice

__all__ = [
    "BODIES",
    "GRACE",
    "PART_BYTES",
    "SETTINGS",
    "bodies_queue",
    "body_of",
    "existing_bodies_queue",
    "is_owner",
    "new_body_id",
    "owner_entry",
    "owner_id",
    "owner_in",
    "part",
    "part_id",
    "shard_of",
]

BODIES = f"{INTERNAL}bodies"
"""The queue of all large bodies of a store."""

SETTINGS = QueueSettings(shards=8, time_shards=4, max_deliveries=None)
"""Of that queue. Its layout never changes: a body would be looked for elsewhere."""

PART_BYTES = 1 << 20

GRACE = 2 * 3_600_000_000
"""The time, in microseconds, for which a body is left alone after its last change. It is longer than any send, move or
copy takes from its owner's entry to its message."""

_OWNER_PRIORITY, _PART_PRIORITY = 0, 9  # a read of a shard has the owners first
_NUMBER_BYTES = 4
_OWNERS = 1 << 31  # the numbers of parts are below


def new_body_id(bundle_id: bytes) -> bytes:
    """Return the id of a body that is made where a fresh bundle id was."""
    return body_of(bundle_id)


def body_of(bundle_id: bytes) -> bytes:
    """Return the id of the body that a part or an owner's entry belongs to."""
    return bundle_id[:-_NUMBER_BYTES] + bytes(_NUMBER_BYTES)


def shard_of(body_id: bytes) -> Shard:
    """Return the shard that has all of a body."""
    layout = SETTINGS.layout
    number = int.from_bytes(body_id[9:12], "big") % layout.shards
    return Shard(BODIES, layout.time_shard(made_at(body_id)), number)


def part_id(body_id: bytes, number: int) -> bytes:
    """Return the id of a part, from 0."""
    return _numbered(body_id, number)


def owner_id(body_id: bytes, message_id: str) -> bytes:
    """Return the id of the entry of a message that has the body."""
    digest = blake2b(message_id.encode(), digest_size=_NUMBER_BYTES).digest()
    return _numbered(body_id, _OWNERS | int.from_bytes(digest, "big"))


def is_owner(bundle_id: bytes) -> bool:
    """Return True for an owner's entry, False for a part."""
    return int.from_bytes(bundle_id[-_NUMBER_BYTES:], "big") >= _OWNERS


def part(body_id: bytes, number: int, content: bytes, now: int) -> Bundle:
    """Make a part as it is stored."""
    return _bundle(part_id(body_id, number), _PART_PRIORITY, content, now)


def owner_entry(body: LargeBody, message_id: str, now: int) -> Bundle:
    """Make an owner's entry as it is stored."""
    return _bundle(owner_id(body.id, message_id), _OWNER_PRIORITY, message_id.encode(), now)


def owner_in(stored: StoredSlice) -> MessageId | None:
    """Read the message that an entry names; None for one that only keeps the body for a while."""
    (content,) = decode_bundle(stored.bundle.data).bodies
    return MessageId.parse(content.decode()) if b":" in content else None


def _numbered(body_id: bytes, number: int) -> bytes:
    return body_id[:-_NUMBER_BYTES] + number.to_bytes(_NUMBER_BYTES, "big")


def _bundle(identity: bytes, priority: int, content: bytes, now: int) -> Bundle:
    """Make a bundle whose due time is the same whenever it is written again, as a store requires."""
    return Bundle(identity, priority, made_at(identity), now, 1, encode_bundle(BundleData([content])))


def existing_bodies_queue(context: QueueContext) -> QueueContext | None:
    """Open the queue of large bodies in the store of another queue; None when it does not exist."""
    try:
        return context.sibling(BODIES)
    except QueueNotFound:
        return None


def bodies_queue(context: QueueContext) -> QueueContext:
    """Open the queue of large bodies in the store of another queue. It is created if it is missing."""
    found = existing_bodies_queue(context)
    if found is not None:
        return found
    context.retry(context.store.create_queue, QueueRecord.new(BODIES, SETTINGS.encode()))
    context.retry(context.store.create_shards, SETTINGS.layout.all_shards(BODIES))
    return context.sibling(BODIES)
