"""Copying what is stored in a shard to another queue, of the same store or another one, as it is.

Bodies, headers, dedupe keys, priority, due time and order are kept; the copies are new messages that nobody has
received. The id of a copy's bundle follows from the original's, so a copy that is made again is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice

import msgspec

from shardq.delivery.admission import check_sizes, check_takes_messages
from shardq.delivery.browsing import slices
from shardq.delivery.context import QueueContext
from shardq.sharding.shard import Shard
from shardq.storage.bundle_data import BundleData, decode_bundle, encode_bundle
from shardq.storage.bundle_id import derive_bundle_id
from shardq.storage.requests import Append, Bundle, EntryState, Peek, StoredSlice

__all__ = ["Copied", "copy_shard", "hash_of_shard"]

PAGE_MESSAGES = 2_000
APPEND_BUNDLES = 8
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_HASH_RANGE = 1 << 63


class Copied(msgspec.Struct, frozen=True):
    """Messages, and the sum of their hashes, which does not depend on their order or on how they are bundled."""

    messages: int = 0
    hash: int = 0

    def __add__(self, other: Copied) -> Copied:
        return Copied(self.messages + other.messages, (self.hash + other.hash) % _HASH_RANGE)


def copy_shard(source: QueueContext, shard: Shard, target: QueueContext) -> Copied:
    """Copy the messages of a shard, those in flight too; returns what was copied."""
    total = Copied()
    layout = target.settings.layout
    stored = slices(source, Peek(shard, PAGE_MESSAGES))
    while some := list(islice(stored, APPEND_BUNDLES)):
        appends: dict[Shard, list[Bundle]] = {}
        for piece in some:
            data = decode_bundle(piece.bundle.data).slice(piece.first, piece.count)
            data = msgspec.structs.replace(data, move_key=None)
            check_sizes(target, data)
            bundle = _copy(piece, data, target)
            place = Shard(
                target.name, layout.time_shard(bundle.due), int.from_bytes(bundle.id[-4:]) % layout.shards
            )
            appends.setdefault(place, []).append(bundle)
            total += _hashed(piece, data)
        check_takes_messages(target)
        for place, bundles in appends.items():
            target.retry(target.store.append, Append(place, tuple(bundles)))
    target.counters.add(sent=total.messages)
    return total


def hash_of_shard(context: QueueContext, shard: Shard) -> Copied:
    """What is stored in a shard."""
    total = Copied()
    for piece in slices(context, Peek(shard, PAGE_MESSAGES)):
        total += _hashed(piece, decode_bundle(piece.bundle.data).slice(piece.first, piece.count))
    return total


def _copy(piece: StoredSlice, data: BundleData, target: QueueContext) -> Bundle:
    source = piece.bundle
    identity = derive_bundle_id(source.id, "copy", target.name, str(piece.first), str(piece.count))
    return Bundle(
        identity, source.priority, _due(piece), source.enqueued_at, piece.count, encode_bundle(data)
    )


def _due(piece: StoredSlice) -> int:
    """From when on the messages are for a consumer; of those in flight as it was before they were received."""
    return piece.due if piece.state is EntryState.DELAYED else piece.bundle.due


def _hashed(piece: StoredSlice, data: BundleData) -> Copied:
    count = len(data.bodies)
    headers: Sequence[object] = data.headers or [None] * count
    keys: Sequence[object] = data.dedupe_keys or [None] * count
    common = (piece.bundle.priority, piece.bundle.enqueued_at, _due(piece))
    total = 0
    for body, header, key in zip(data.bodies, headers, keys, strict=True):
        message = _encoder.encode((body, header or None, key, *common))
        total += int.from_bytes(blake2b(message, digest_size=8).digest()) >> 1
    return Copied(count, total % _HASH_RANGE)
