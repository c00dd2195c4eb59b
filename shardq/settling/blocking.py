"""Giving up messages so that they block their groups: see :mod:`shardq.context.blocked`."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.context.blocked import BLOCKED_UNTIL, enter_reason
from shardq.context.queue_context import QueueContext
from shardq.context.retry import Answer
from shardq.held import Selection
from shardq.settling.settle import settle, spans_of
from shardq.settling.verbs import BLOCK
from shardq.sharding.shard import Shard
from shardq.storage.requests import Fenced

__all__ = ["block", "may_block"]


def may_block(context: QueueContext, shard: Shard) -> bool:
    """True when messages of a shard are to stay where they are, and hold up their group, if they are given up."""
    return shard.is_grouped and context.settings.on_dead_letter == "block"


def block(context: QueueContext, shard: Shard, group: Sequence[Selection], *, reason: str) -> Answer[Fenced]:
    """Hold selected messages of a shard from now on."""
    ids = [str(each.held.message_id(position)) for each in group for position in each.positions]
    enter_reason(context, ids, reason)
    return settle(context, BLOCK, shard, spans_of(group), BLOCKED_UNTIL - context.store.now())
