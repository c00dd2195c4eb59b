"""The decision log: decisions of the first attempt at a piece of work, for those that come after it.

A piece of work is carried out by several attempts when it is retried, repeated after a restart, or run twice at the
same time. The first attempt that writes its entry decides; the others find it and do the same. The entries are
stored as dedupe keys of the queue: a store promises that of all reservations of a key, one stands.

The reasons of blocked groups are stored so. Where a queue asks for it, a message that is given up stays where it is,
and its group waits. No consumer holds it then: it is lost to the claim of its last delivery.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from shardq.base.shard import Shard
from shardq.core.context.queue_context import QueueContext
from shardq.storage.requests import DedupeEntry

__all__ = ["Decision", "DecisionLog", "enter_reason", "may_block", "why_blocked"]

_NOTHING = ""
_READER_PAUSE = 0.01  # seconds
_NO_TIME = -30 * 365 * 86_400_000_000
"""A reservation with this window ended years ago by every clock, also by one that was ahead: it only reads entries."""


class Decision(msgspec.Struct, frozen=True):
    """The value that is stored under a key, and whether the work is done."""

    value: str
    done: bool


class DecisionLog:
    """The entries of one queue whose keys begin alike."""

    def __init__(self, context: QueueContext, prefix: str) -> None:
        self._context, self._prefix = context, prefix

    def decide(self, key: str, value: str, window: int) -> Decision:
        """Enter the value for ``window`` microseconds, unless another one is entered. Returns the entry that counts."""
        (entry,) = self.decide_all([key], value, window)
        return entry

    def decide_all(self, keys: Sequence[str], value: str, window: int) -> list[Decision]:
        """Enter the value under several keys as :meth:`decide` does; returns the entry of each that counts.

        The reservation of a reader by an older version ends at once, by its clock. This waits until it has ended.
        """
        current = self._reserve(keys, value, window)
        while not all(entry.value for entry in current):
            time.sleep(_READER_PAUSE)
            current = self._reserve(keys, value, window)
        return current

    def enter(self, keys: Sequence[str], value: str, window: int) -> None:
        """Enter one value under several keys for ``window`` microseconds; existing entries stay."""
        self._reserve(keys, value, window)

    def read(self, keys: Sequence[str]) -> list[Decision | None]:
        """Read the entry under each key; None where there is none."""
        found = self._reserve(keys, _NOTHING, _NO_TIME) if keys else []
        return [entry if entry.value else None for entry in found]

    def finish(self, key: str, value: str) -> None:
        """Note that the work is done, if this value stands."""
        entry = DedupeEntry(self._prefix + key, value)
        self._context.retry(self._context.store.confirm_keys, self._context.name, [entry])

    def _reserve(self, keys: Sequence[str], value: str, window: int) -> list[Decision]:
        context = self._context
        wanted = [DedupeEntry(self._prefix + key, value) for key in keys]
        current = context.retry(context.store.reserve_keys, context.name, wanted, window)
        return [Decision(entry.message_id, entry.confirmed) for entry in current]


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
