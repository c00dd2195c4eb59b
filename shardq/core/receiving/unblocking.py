"""Letting blocked groups go on: their given-up messages are delivered again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.codec import BYTES
from shardq.core.browsing import blocked_slices
from shardq.core.context.queue_context import QueueContext
from shardq.core.settling.moves import Unblock
from shardq.core.settling.settlement import Settlement
from shardq.errors import InvalidMessage, LeaseLost
from shardq.held import HeldSlice, Selection, SettleState
from shardq.storage.requests import ClaimedSlice, StoredSlice
from shardq.storage.writing import telling_done

__all__ = ["unblock"]

_log = logging.getLogger(__name__)


def unblock(context: QueueContext, limit: int) -> int:
    """Let up to so many blocked messages be delivered again, as new messages in their places; returns how many.

    Those of a group go together, or the last ones first where they are large, as the first one to go lets go of what is
    held behind it. A group in which something is damaged in the store blocks on, until that is removed.
    """
    settlement = Settlement(context, BYTES, by_receipt=True)
    moved = 0
    with telling_done(lambda: f"{moved} messages are delivered again: repeat the call" if moved else ""):
        for group in _by_group(context):
            chosen = _first(group, limit - moved)
            try:
                with suppress(LeaseLost):  # somebody else was first
                    settlement.move(chosen, Unblock(context))
            finally:
                moved += sum(len(each.in_states(SettleState.RELEASED).positions) for each in chosen)
            if moved >= limit:
                break
    return moved


def _by_group(context: QueueContext) -> list[list[HeldSlice]]:
    """Return what blocks, by group. A damaged message stays, so nothing of its group may let go of it."""
    groups: dict[tuple[Shard, str], list[HeldSlice]] = {}
    damaged: set[tuple[Shard, str]] = set()
    for shard, piece in blocked_slices(context):
        group = shard, piece.bundle.group
        try:
            groups.setdefault(group, []).append(_held(shard, piece))
        except InvalidMessage as error:
            damaged.add(group)
            _log.error(
                "message %s blocks its group, and cannot be redriven: %s",
                MessageId(shard, piece.bundle.id, piece.first),
                error,
            )
    return [held for group, held in groups.items() if group not in damaged]


def _held(shard: Shard, piece: StoredSlice) -> HeldSlice:
    assert piece.token is not None
    claimed = ClaimedSlice(piece.bundle, piece.first, piece.count, piece.deliveries)
    held = HeldSlice(shard, claimed, piece.token, piece.due)
    held.unique_key, held.large = held.messages.unique_key, held.messages.large
    return held


def _first(group: Sequence[HeldSlice], limit: int) -> list[Selection]:
    """Up to so many messages."""
    selections = []
    for held in group:
        selections.append(held.select(list(range(held.count))[:limit]))
        limit -= len(selections[-1].positions)
    return [selection for selection in selections if selection.positions]
