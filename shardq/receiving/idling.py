"""Sleeping while a queue has nothing to read."""

from __future__ import annotations

import time
from collections.abc import Callable

from shardq.context.queue_context import QueueContext
from shardq.sharding.reading import ShardReader

__all__ = ["Idling"]

# Where the store signals appends a poll is for what was missed only; many consumers share the looking.
SLOW_POLL_SECONDS = 5.0
SLOW_POLLS_PER_SECOND = 1  # of all consumers together, unless that takes longer than
LONGEST_POLL_SECONDS = 10.0  # for each, as a consumer that is silent for 16 seconds counts as gone
# Where it does not:
FIRST_POLL_SECONDS = 0.005  # doubled by every empty read, up to
LAST_POLL_SECONDS = 0.25  # or, where many consumers share the looking, so long that together they make
POLLS_PER_SECOND = 12  # so many polls; what one does not see in time, another takes
SLICE_SECONDS = 0.5  # a stop is noticed within


class Idling:
    """Sleeps until there may be something to read: a signal, a due time that is known, or the next poll."""

    def __init__(self, context: QueueContext, reader: ShardReader, stopped: Callable[[], bool]) -> None:
        self._context, self._reader, self._stopped = context, reader, stopped
        self._poll = FIRST_POLL_SECONDS

    def reset(self) -> None:
        """Something was read: poll quickly again."""
        self._poll = FIRST_POLL_SECONDS

    def sleep(self, at_most: float) -> None:
        """Sleep, but not longer than so many seconds."""
        until = time.monotonic() + min(at_most, self._longest())
        while (left := until - time.monotonic()) > 0 and not self._stopped():
            if self._context.retry(self._context.store.wait, self._context.name, min(left, SLICE_SECONDS)):
                return

    def _longest(self) -> float:
        due = self._reader.seconds_until_due()
        slow = max(SLOW_POLL_SECONDS, self._reader.consumers / SLOW_POLLS_PER_SECOND)
        longest = min(slow, LONGEST_POLL_SECONDS, *(() if due is None else (due,)))
        if self._context.settings.delivery_paused:
            return SLICE_SECONDS
        if self._context.store.capabilities.signals:
            return longest
        last = max(LAST_POLL_SECONDS, self._reader.consumers / POLLS_PER_SECOND)
        self._poll, poll = min(self._poll * 2, last), self._poll
        return min(longest, poll)
