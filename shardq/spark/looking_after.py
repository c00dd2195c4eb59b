"""What a stream does for its queue beside its messages, as any consumer does: duties, and a sweep once a minute."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from shardq.core.context.queue_context import QueueContext
from shardq.core.receiving.sweeping import SweepThread
from shardq.core.receiving.upkeep import Upkeep
from shardq.errors import QueueNotFound

__all__ = ["LookingAfter"]


class LookingAfter:
    """Looks after the queue of one stream.

    A sweep looks at every shard, which takes up to seconds over a network. Where the store takes several requests at
    once a thread does it, and the trigger goes on.
    """

    def __init__(self, context: QueueContext) -> None:
        self._context, self._upkeep = context, Upkeep(context)
        self._thread = SweepThread()

    def attend(self) -> None:
        """Do what is due, or begin it."""
        self._upkeep.attend()
        now = self._context.store.now()
        if not self._upkeep.has_to_sweep(now) or self._thread.is_busy:
            return
        if self._context.store.capabilities.requests_at_once == 1:
            self._sweep(now)
            return
        self._thread.begin(partial(self._sweep, now))

    def close(self) -> None:
        """Wait for a sweep that is under way, for some seconds."""
        self._thread.close()

    def _sweep(self, now: int) -> None:
        """Also of large bodies: the tasks alone know whether there were any."""
        with suppress(QueueNotFound):  # the plan finds it out
            self._upkeep.sweep(now, large=True)
