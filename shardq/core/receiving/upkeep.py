"""Upkeep of a queue by its consumers: they attend to its background jobs, and remove leftovers.

Background jobs are stored in the queue's record (:mod:`shardq.core.context.queue_records`). The client runs them: a
function attends to one job and returns the moment when it has something to do again. Every consumer of the queue calls
it then, so it must be safe for several at a time. The moment is a hint: it is asked for anew when the queue's record
has changed, and after a minute at the latest.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shardq.base.clock import seconds
from shardq.base.log import Log
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.unique_keys import sweep_keys
from shardq.core.large.collecting import collect_bodies
from shardq.core.logs.log_queues import drop_old_logs
from shardq.core.queue_lifecycle import sweep_beside
from shardq.core.receiving.removing import expire, sweep_steps
from shardq.errors import QueueNotFound, ShardqError

__all__ = ["Upkeep", "sweep"]

_log = Log(__name__)

# In microseconds.
INTERVAL = 60_000_000  # of sweeps, and until a background job is looked at again, whatever was said
LONG_INTERVAL = 600_000_000  # of unique keys and large bodies: what is left is in nobody's way
_AFTER_ERROR = 2_000_000

_PATIENCE = 0.2  # seconds for which what fails is repeated: messages come first


class Upkeep:
    """Attends to the background jobs of one queue, and sweeps it once a minute."""

    def __init__(self, context: QueueContext, timer: Callable[[], float] = time.monotonic) -> None:
        self._context, self.timer = context, timer
        self.swept_at = -(10**18)
        self.is_broken_off = False
        """True when the last sweep had no time for all that it found."""
        self._is_long = False
        self._version = -1  # of the record that listed the background jobs
        self.moments: dict[str, int] = {}  # when each background job has something to do

    def due_at(self, *, sweeps: bool) -> int:
        """Return the moment until which there is nothing to do; without ``sweeps`` for background jobs alone."""
        sweep = 0 if self.is_broken_off else self.swept_at + INTERVAL
        return min([*self.moments.values(), *([sweep] if sweeps else ())], default=2**62)

    def attend(self) -> None:
        """Attend to the background jobs that are due. Failures are logged, and tried again soon."""
        live = self._context.live
        if not live.jobs:
            self.moments.clear()
            return
        if live.version != self._version:
            self._version = live.version
            self.moments = dict.fromkeys(live.jobs, 0)
        now = self._context.store.now()
        for name, moment in self.moments.items():
            if not now < moment <= now + INTERVAL:  # due, or the clock was put back
                self.moments[name] = self._attended(name, now)

    def seconds_until_job(self) -> float | None:
        """Return the seconds until a background job has something to do; None: there are none."""
        if not self.moments:
            return None
        return max(0.0, seconds(min(self.moments.values()) - self._context.store.now()))

    def _attended(self, name: str, now: int) -> int:
        try:
            with self._context.retry.within(_PATIENCE):
                return min(self._context.attend(self._context, name), now + INTERVAL)
        except Exception as error:  # a hook, a record of a later version: messages are received all the same
            _log.warning("%s was not attended to: %s: %s", name, type(error).__name__, error)
            return now + _AFTER_ERROR

    def has_to_sweep(self, now: int) -> bool:
        """Return whether the last sweep was a minute ago, or is to be continued."""
        return self.is_broken_off or not self.swept_at <= now < self.swept_at + INTERVAL

    def sweep(self, now: int, *, large: bool = False, seconds: float | None = None) -> None:
        """Remove leftovers, with ``large`` also those of large bodies, now and then.

        It is broken off after the first step that ends later than ``seconds``; the next call continues.
        """
        before = self.swept_at if self.swept_at >= 0 else now - INTERVAL
        self._is_long = self._is_long or before // LONG_INTERVAL != now // LONG_INTERVAL
        self.swept_at, self.is_broken_off = now, False
        try:
            with self._context.retry.within(0):
                self.is_broken_off = not self._remove_leftovers(seconds)
                if not self.is_broken_off:
                    self._remove_rest(large=large)
        except QueueNotFound:
            raise
        except ShardqError as error:
            # Messages come first: it is tried again in a minute, unless another thread has closed the client.
            if not self._context.retry.closed:
                _log.warning("queue %s was not swept: %s", self._context.name, error)

    def _remove_leftovers(self, seconds: float | None) -> bool:
        """Remove leftovers; True when nothing is left."""
        began = self.timer()
        return not any(
            seconds is not None and self.timer() - began > seconds for _ in sweep_steps(self._context)
        )

    def _remove_rest(self, *, large: bool) -> None:
        is_long, self._is_long = self._is_long, False
        if is_long:
            sweep_keys(self._context)
        if is_long and large:
            collect_bodies(self._context)
        if self._context.settings.expires is not None:
            sweep_beside(self._context)


def sweep(context: QueueContext) -> int:
    """Remove leftovers and messages that have expired; returns how many things. See :meth:`shardq.Queue.sweep`."""
    removed = sum(sweep_steps(context)) + expire(context)
    removed += sweep_keys(context, everything=True) + drop_old_logs(context)
    return removed + collect_bodies(context)
