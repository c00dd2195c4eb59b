"""Copies of processed messages, sent again."""

from __future__ import annotations

import secrets

import msgspec

from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.browsing import history_slices
from shardq.core.context.queue_context import QueueContext
from shardq.core.large.bodies import carry_body
from shardq.core.sending.appending import REPLAY, admit, append
from shardq.core.sending.planned_bundles import PlannedBundle, choose_shard, lane_among, sizes
from shardq.storage.bundles import BundleData, decode_bundle, derive_bundle_id, encode_bundle
from shardq.storage.requests import StoredSlice
from shardq.storage.writing import reporting_done

__all__ = ["carried", "messages_of", "replay"]


def replay(source: QueueContext, target: QueueContext, since: int, until: int) -> int:
    """Send copies of processed messages to a queue; returns how many.

    Raises QueuePaused or MessageTooLarge, and OutcomeUnknown when the store fails after some copies; those that were
    sent before stay sent.
    """
    admit(target, REPLAY)
    run, lanes = secrets.token_hex(8), target.settings.group_concurrency
    sent = 0
    with reporting_done(lambda: f"{sent} copies are sent: a second call sends these, too" if sent else ""):
        for origin, piece in history_slices(source, since, until):
            data = carried(source, target, origin, piece, messages_of(origin, piece))
            append(target, REPLAY, [_replayed(target, piece, data, run, lanes)])
            sent += piece.count
    return sent


def _replayed(
    target: QueueContext, piece: StoredSlice, data: BundleData, run: str, lanes: int
) -> PlannedBundle:
    admit(target, REPLAY, max(sizes(data)))
    now, group = target.store.now(), lane_among(piece.bundle.group, lanes)
    identity = derive_bundle_id(piece.bundle.id, "replay", run, str(piece.first), str(piece.due))
    shard = choose_shard(target, now, piece.count, group)
    return PlannedBundle(
        identity,
        piece.bundle.priority,
        due=now,
        enqueued_at=now,
        count=piece.count,
        data=encode_bundle(data),
        group=group,
        shard=shard,
        large=data.large,
    )


def messages_of(shard: Shard, piece: StoredSlice) -> BundleData:
    """Copy the messages of a slice as a separate bundle, which was not moved. A copy has no unique key."""
    first = MessageId(shard, piece.bundle.id, piece.first)
    data = decode_bundle(piece.bundle.data, first).slice(piece.first, piece.count)
    return msgspec.structs.replace(data, move_key=None, unique_key=None)


def carried(
    source: QueueContext, target: QueueContext, shard: Shard, piece: StoredSlice, data: BundleData
) -> BundleData:
    """Return the messages with a large body that is in the target's store."""
    if data.large is None:
        return data
    identity = MessageId(shard, piece.bundle.id, piece.first)
    return msgspec.structs.replace(data, large=carry_body(source, target, data.large, str(identity)))
