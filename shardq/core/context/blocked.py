"""Blocked groups: where a queue asks for it, a message that is given up stays where it is, and its group waits.

No consumer holds it then: it is lost to the claim of its last delivery. The reason is stored in a decision log.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardq.base.shard import Shard
from shardq.core.context.decision_log import DecisionLog
from shardq.core.context.queue_context import QueueContext

__all__ = ["enter_reason", "may_block", "why_blocked"]

_REMEMBERED = 365 * 86_400_000_000
_LONGEST = 500
_PREFIX = "shardq-blocked:"


def may_block(context: QueueContext, shard: Shard) -> bool:
    """Return whether given-up messages of a shard are to stay where they are, and hold up their group."""
    return shard.is_grouped and context.settings.on_dead_letter == "block"


def enter_reason(context: QueueContext, identities: Sequence[str], reason: str) -> None:
    """Note why messages are given up that will block their groups."""
    DecisionLog(context, _PREFIX).enter(identities, reason[:_LONGEST] or "no reason was given", _REMEMBERED)


def why_blocked(context: QueueContext, identity: str) -> str:
    """Return why a blocked message was given up, which is known for a year."""
    (entry,) = DecisionLog(context, _PREFIX).read([identity])
    return "the reason is not kept any more" if entry is None else entry.value
