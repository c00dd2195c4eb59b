"""Looking after what stands in the queue's record as its duties (:mod:`shardq.context.duties`), while receiving.

The client says how: a function that attends to one duty and returns the moment when that has something to do again.
Every consumer of the queue calls it then, so it must be safe for several at a time. The moment is a hint: it is asked
for anew when the queue's record has changed, and after a minute at the latest.
"""

from __future__ import annotations

import logging

from shardq.clock import seconds
from shardq.context.queue_context import QueueContext

__all__ = ["LONGEST", "Duties"]

_log = logging.getLogger(__name__)

LONGEST = 60_000_000  # microseconds until a duty is looked at again, whatever was said
_AFTER_ERROR = 2_000_000
_PATIENCE = 0.2  # seconds for which what fails is repeated: messages come first


class Duties:
    """The duties of one queue, for one of its consumers."""

    def __init__(self, context: QueueContext) -> None:
        self._context, self._version = context, -1
        self._moments: dict[str, int] = {}

    def attend(self) -> None:
        """Attend to those that are due. What fails is logged, and tried again soon."""
        live = self._context.live
        if not live.duties or self._context.attend is None:
            self._moments.clear()
            return
        if live.version != self._version:
            self._version = live.version
            self._moments = dict.fromkeys(live.duties, 0)
        now = self._context.store.now()
        for name, moment in self._moments.items():
            if not now < moment <= now + LONGEST:  # due, or the clock was put back
                self._moments[name] = self._attended(name, now)

    def seconds_until_due(self) -> float | None:
        """Seconds until one of them has something to do; None: there are none."""
        if not self._moments:
            return None
        return max(0.0, seconds(min(self._moments.values()) - self._context.store.now()))

    def _attended(self, name: str, now: int) -> int:
        assert self._context.attend is not None
        try:
            with self._context.retry.within(_PATIENCE):
                return min(self._context.attend(self._context, name), now + LONGEST)
        except Exception as error:  # a hook, a record of a later version: messages are received all the same
            _log.warning("%s was not attended to: %s: %s", name, type(error).__name__, error)
            return now + _AFTER_ERROR
