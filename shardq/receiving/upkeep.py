"""What whoever receives from a queue does for it now and then, beside its messages: removes what is left over."""

from __future__ import annotations

import logging

from shardq.context.queue_context import QueueContext
from shardq.errors import QueueNotFound, ShardqError
from shardq.large.collecting import collect_bodies
from shardq.receiving.expiring import sweep
from shardq.receiving.unused import sweep_beside

__all__ = ["Upkeep"]

_log = logging.getLogger(__name__)

INTERVAL = 60_000_000  # microseconds
LONG_INTERVAL = 600_000_000  # of unique keys and large bodies: what is left is in nobody's way


class Upkeep:
    """Sweeps one queue once a minute."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self.swept_at = -(10**18)

    def is_due(self, now: int) -> bool:
        """True when the last sweep was a minute ago."""
        return not self.swept_at <= now < self.swept_at + INTERVAL

    def sweep(self, now: int, *, large: bool = False) -> None:
        """Remove leftovers, with ``large`` also those of large bodies, now and then."""
        before = self.swept_at if self.swept_at >= 0 else now - INTERVAL
        is_long = before // LONG_INTERVAL != now // LONG_INTERVAL
        self.swept_at = now
        try:
            with self._context.retry.within(0):
                sweep(self._context, keys=is_long)
                if is_long and large:
                    collect_bodies(self._context)
                if self._context.settings.expires is not None:
                    sweep_beside(self._context)
        except QueueNotFound:
            raise
        except ShardqError as error:
            # Messages come first: it is tried again in a minute, unless another thread has closed the client.
            if not self._context.retry.closed:
                _log.warning("queue %s was not swept: %s", self._context.name, error)
