"""Copies of the messages of a shard, made in another queue.

A shard is copied as it is, to another queue of the same store or another one. Bodies, headers, dedupe keys, priority,
due time and order are kept; the copies are new messages, which were never delivered. The id of a copy's bundle follows
from the slice that it was in. So a copy that is made again is stored once, as long as the source is cut into the same
slices. The first attempt of a run enters how each shard was cut into the target's decision log. An attempt that finds
it cut otherwise, as after a consumer received from it, is refused. So is how many lanes a group had in the target, for
attempts after that was changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count, islice

import msgspec

from shardq.base.outgoing_message import group_of
from shardq.base.shard import Shard
from shardq.core.browsing import READ_AHEAD_BYTES, slices
from shardq.core.context.decision_log import DecisionLog
from shardq.core.context.queue_context import QueueContext
from shardq.core.sending.appending import COPY, admit, append
from shardq.core.sending.planned_bundles import (
    PlannedBundle,
    choose_shard,
    grouped_by_shard,
    lane_among,
    sizes,
)
from shardq.core.sending.replays import carried, messages_of
from shardq.errors import InvalidSetting, ReplayConflict
from shardq.storage.bundles import BundleData, derive_bundle_id, encode_bundle
from shardq.storage.requests import EntryState, Peek, StoredSlice

__all__ = ["Copied", "begin_copy", "copy_shard", "hash_of_shard", "resume_copy"]

PAGE_MESSAGES = 2_000
FIRST_PAGE = 64  # messages, with their bodies
APPEND_BUNDLES = 8
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_HASH_RANGE = 1 << 63
_PREFIX = "shardq-copy:"
_MEMORY = 7 * 86_400_000_000
"""For how long, in microseconds, a copy that was interrupted can be continued."""


class Copied(msgspec.Struct, frozen=True):
    """Messages, and the sum of their hashes, which does not depend on their order or on how they are bundled."""

    messages: int = 0
    hash: int = 0

    def __add__(self, other: Copied) -> Copied:
        return Copied(self.messages + other.messages, (self.hash + other.hash) % _HASH_RANGE)


def begin_copy(target: QueueContext) -> str:
    """Begin a run of copies into a queue. Returns its name, which :func:`resume_copy` finds from now on."""
    log, name = DecisionLog(target, _PREFIX), secrets.token_hex(8)
    for number in count():
        if log.decide(f"run:{number}", name, _MEMORY).value == name:
            return name
    raise AssertionError


def resume_copy(target: QueueContext) -> str:
    """Return the name of the last run that was begun within a week; raises InvalidSetting when there was none."""
    log, found = DecisionLog(target, _PREFIX), None
    for number in count():
        (entry,) = log.read([f"run:{number}"])
        if entry is None:
            break
        found = entry.value
    if found is None:
        raise InvalidSetting(
            f"no copy into queue {target.name!r} was begun within 7 days: begin one, into an empty queue"
        )
    return found


def copy_shard(source: QueueContext, shard: Shard, target: QueueContext, run: str) -> Copied:
    """Copy the messages of a shard, those in flight too; returns their hash.

    Raises ReplayConflict when the shard changed since this run, in an earlier attempt or in this one, looked at it.
    """
    looked = Peek(shard, PAGE_MESSAGES, bodies=False)
    cut = sum(map(_cut, slices(source, looked))) % _HASH_RANGE
    offered = f"{cut:016x}:{target.settings.group_concurrency}"
    entry = DecisionLog(target, _PREFIX).decide(f"{run}:{shard}", offered, _MEMORY)
    decided, _, lanes = entry.value.partition(":")
    if decided != f"{cut:016x}":
        raise _conflict(shard, target)
    total, copied = Copied(), 0
    stored = slices(source, Peek(shard, FIRST_PAGE), READ_AHEAD_BYTES)
    while some := list(islice(stored, APPEND_BUNDLES)):
        copies = []
        for piece in some:
            data = messages_of(shard, piece)
            copies.append(_copy(piece, carried(source, target, shard, piece, data), target, int(lanes or 1)))
            total += _hashed(piece, data)
            copied += _cut(piece)
        for group in grouped_by_shard(copies):
            append(target, COPY, group)
    if copied % _HASH_RANGE != cut:
        raise _conflict(shard, target)
    return total


def hash_of_shard(context: QueueContext, shard: Shard) -> Copied:
    """Hash the messages of a shard."""
    total = Copied()
    for piece in slices(context, Peek(shard, FIRST_PAGE), READ_AHEAD_BYTES):
        total += _hashed(piece, messages_of(shard, piece))
    return total


def _conflict(shard: Shard, target: QueueContext) -> ReplayConflict:
    return ReplayConflict(
        f"shard {shard} was used while it was copied: what of it is in queue {target.name!r} cannot be told; "
        f"pause queue {shard.queue!r}, delete {target.name!r}, and begin again"
    )


def _copy(piece: StoredSlice, data: BundleData, target: QueueContext, lanes: int) -> PlannedBundle:
    admit(target, COPY, max(sizes(data)))
    source, due, layout = piece.bundle, _due(piece), target.settings.layout
    identity = derive_bundle_id(source.id, "copy", target.name, str(piece.first), str(piece.count))
    shard = Shard(target.name, layout.time_shard(due), int.from_bytes(identity[-4:]) % layout.shards)
    if group := lane_among(source.group, lanes):
        shard = choose_shard(target, due, piece.count, group)
    changes = {"id": identity, "due": due, "count": piece.count, "data": encode_bundle(data)}
    bundle = msgspec.structs.replace(source, **changes, group=group)
    return PlannedBundle.of(shard, bundle, large=data.large)


def _cut(piece: StoredSlice) -> int:
    """Return a number that distinguishes this slice from every other one, to be added up."""
    place = _encoder.encode((piece.bundle.id, piece.first, piece.count))
    return int.from_bytes(blake2b(place, digest_size=8).digest()) >> 1


def _due(piece: StoredSlice) -> int:
    """Return the due time of the messages; of those in flight, the one that they had before they were received."""
    return piece.due if piece.state is EntryState.DELAYED else piece.bundle.due


def _hashed(piece: StoredSlice, data: BundleData) -> Copied:
    messages = len(data.bodies)
    headers: Sequence[object] = data.headers or [None] * messages
    keys: Sequence[object] = data.dedupe_keys or [None] * messages
    source = piece.bundle
    group = group_of(source.group) or ""
    common = (source.priority, source.enqueued_at, _due(piece), source.expires_at, group)
    total = 0
    for body, header, key in zip(data.bodies, headers, keys, strict=True):
        message = _encoder.encode((body, header or None, key, *common))
        total += int.from_bytes(blake2b(message, digest_size=8).digest()) >> 1
    return Copied(messages, total % _HASH_RANGE)
