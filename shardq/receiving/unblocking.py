"""Letting blocked groups go on: their given-up messages are delivered again."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shardq.browsing import blocked_slices
from shardq.codec import BYTES
from shardq.context.queue_context import QueueContext
from shardq.errors import InvalidMessage, LeaseLost
from shardq.held import HeldSlice, Selection
from shardq.receipt import MessageId
from shardq.sending.planned_bundles import sizes
from shardq.settling.moves import Unblock
from shardq.settling.settlement import Settlement
from shardq.sharding.shard import Shard
from shardq.storage.requests import ClaimedSlice, StoredSlice
from shardq.storage.writing import telling_done

__all__ = ["unblock"]

_log = logging.getLogger(__name__)

_STEP_BYTES = 4 << 20  # of messages that go in one step: there is an end to what a store takes in one


def unblock(context: QueueContext, limit: int) -> int:
    """Let up to so many blocked messages be delivered again, as new messages in their places; returns how many.

    Those of a group go together, or the last ones first where they are large, as the first one to go lets go of what is
    held behind it. What is damaged in the store blocks on, until it is removed.
    """
    settlement = Settlement(context, BYTES, by_receipt=True)
    moved = 0
    with telling_done(lambda: f"{moved} messages are delivered again: repeat the call" if moved else ""):
        for group in _by_group(context):
            for step in reversed(_steps(_first(group, limit - moved))):
                try:
                    settlement.move(step, Unblock(context))
                except LeaseLost as error:  # somebody else was first
                    moved -= len(error.messages)
                moved += sum(len(selection.positions) for selection in step)
            if moved >= limit:
                break
    return moved


def _by_group(context: QueueContext) -> list[list[HeldSlice]]:
    groups: dict[tuple[Shard, str], list[HeldSlice]] = {}
    for shard, piece in blocked_slices(context):
        try:
            groups.setdefault((shard, piece.bundle.group), []).append(_held(shard, piece))
        except InvalidMessage as error:
            _log.error(
                "message %s blocks its group, and cannot be redriven: %s",
                MessageId(shard, piece.bundle.id, piece.first),
                error,
            )
    return list(groups.values())


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


def _steps(selections: Sequence[Selection]) -> list[list[Selection]]:
    """The selections in parts, none of which is too large for one step."""
    steps: list[list[Selection]] = []
    room = 0
    for each in selections:
        size = sizes(each.held.messages)
        needed = sum(size[position] for position in each.positions)
        if not steps or needed > room:
            steps.append([])
            room = _STEP_BYTES
        steps[-1].append(each)
        room -= needed
    return steps
