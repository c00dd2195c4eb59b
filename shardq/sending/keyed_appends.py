"""Appending bundles of which some are stored only if their keys are free. Repeating it stores nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.context.queue_context import QueueContext
from shardq.sending.doors import Door, append
from shardq.sending.planned_bundles import (
    PlannedBundle,
    confirm,
    grouped_by_shard,
    parts_by_unique_key,
    reserve,
)
from shardq.sending.unique_sends import UniqueSend

__all__ = ["append_keyed"]


def append_keyed(context: QueueContext, door: Door, bundles: Sequence[PlannedBundle]) -> int:
    """Store bundles of one shard; returns how many were not stored, as other messages have their keys.

    Groups keep their order. Raises what :func:`shardq.sending.doors.append` raises.
    """
    if not any(planned.has_key for planned in bundles):
        append(context, door, bundles)
        return 0
    duplicates = 0
    for is_unique, part in parts_by_unique_key(bundles):
        duplicates += (_append_unique if is_unique else _append_reserved)(context, door, part)
    return duplicates


def _append_reserved(context: QueueContext, door: Door, bundles: Sequence[PlannedBundle]) -> int:
    reservation = reserve(context, bundles)
    for some in grouped_by_shard(reservation.bundles):
        append(context, door, some, keys_read_at=reservation.read_at)
    confirm(context, reservation)
    own = {planned.places[0]: str(planned.message_id(0)) for planned in bundles if planned.key is not None}
    others = [place for place, holder in reservation.duplicates.items() if holder != own[place]]
    duplicates = len(others) + len(reservation.same_key)
    if duplicates:
        context.counters.add(deduplicated=duplicates)
    return duplicates


def _append_unique(context: QueueContext, door: Door, bundles: Sequence[PlannedBundle]) -> int:
    unique = UniqueSend(context, door)
    unique.run(bundles)
    if unique.error is not None:
        raise unique.error
    return unique.duplicates
