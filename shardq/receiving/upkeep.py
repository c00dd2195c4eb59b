"""What whoever receives from a queue does for it now and then, beside its messages: removes what is left over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from shardq.context.queue_context import QueueContext
from shardq.context.unique_keys import sweep_keys
from shardq.errors import QueueNotFound, ShardqError
from shardq.large.collecting import collect_bodies
from shardq.receiving.expiring import sweep_steps
from shardq.receiving.unused import sweep_beside

__all__ = ["Upkeep"]

_log = logging.getLogger(__name__)

INTERVAL = 60_000_000  # microseconds
LONG_INTERVAL = 600_000_000  # of unique keys and large bodies: what is left is in nobody's way


class Upkeep:
    """Sweeps one queue once a minute."""

    def __init__(self, context: QueueContext, timer: Callable[[], float] = time.monotonic) -> None:
        self._context, self.timer = context, timer
        self.swept_at = -(10**18)
        self.is_broken_off = False
        """True when the last sweep had no time for all that it found."""
        self._is_long = False

    def is_due(self, now: int) -> bool:
        """True when the last sweep was a minute ago, or is to be gone on with."""
        return self.is_broken_off or not self.swept_at <= now < self.swept_at + INTERVAL

    def sweep(self, now: int, *, large: bool = False, seconds: float | None = None) -> None:
        """Remove leftovers, with ``large`` also those of large bodies, now and then.

        It is broken off after the first step that ends later than so many ``seconds``; the next call goes on.
        """
        before = self.swept_at if self.swept_at >= 0 else now - INTERVAL
        self._is_long = self._is_long or before // LONG_INTERVAL != now // LONG_INTERVAL
        self.swept_at, self.is_broken_off = now, False
        try:
            with self._context.retry.within(0):
                self.is_broken_off = not self._remove_leftovers(seconds)
                if not self.is_broken_off:
                    self._look_after_rest(large=large)
        except QueueNotFound:
            raise
        except ShardqError as error:
            # Messages come first: it is tried again in a minute, unless another thread has closed the client.
            if not self._context.retry.closed:
                _log.warning("queue %s was not swept: %s", self._context.name, error)

    def _remove_leftovers(self, seconds: float | None) -> bool:
        """True when nothing is left."""
        began = self.timer()
        return not any(
            seconds is not None and self.timer() - began > seconds for _ in sweep_steps(self._context)
        )

    def _look_after_rest(self, *, large: bool) -> None:
        is_long, self._is_long = self._is_long, False
        if is_long:
            sweep_keys(self._context)
        if is_long and large:
            collect_bodies(self._context)
        if self._context.settings.expires is not None:
            sweep_beside(self._context)
