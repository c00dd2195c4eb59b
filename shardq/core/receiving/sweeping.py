"""Sweeping queues now and then, so that no message waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

from shardq.core.receiving.claiming import QueueClaims
from shardq.core.receiving.left_out import LeftOut
from shardq.errors import QueueNotFound
from shardq.storage.store import Store

__all__ = ["SweepThread", "Sweeping"]

SWEEP_SECONDS = 0.05  # after which messages come first again
FEW_QUEUES = 5  # that are swept once a minute each; more of them one by one,
SWEEP_PAUSE = 12.0  # seconds apart, or in as many turns as
LONGEST_SWEEP_TURN = 600.0  # seconds give, for all of them
CLOSING_SECONDS = 5.0  # for which the end of who receives waits for a sweep that is under way


class SweepThread:
    """Does one sweep at a time, which must raise nothing; none where no thread can be started."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """True while a sweep is under way."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, sweep: Callable[[], None]) -> None:
        """Begin a sweep; for who has seen that the thread is not busy."""
        thread = threading.Thread(target=sweep, name="shardq-sweep", daemon=True)
        with suppress(RuntimeError):  # the interpreter is about to end, or there are too many threads
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """Wait for a sweep that is under way, for some seconds."""
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)


class Sweeping:
    """Sweeps the queues of one consumer when it is their turn.

    A sweep looks at every shard, which takes up to seconds over a network. Where the store takes several requests at
    once a thread does it aside, and whoever receives goes on. Elsewhere a sweep that finds much is broken
    off after a moment, and the next calls go on with it.
    """

    def __init__(
        self,
        queues: Collection[QueueClaims],
        left_out: LeftOut,
        store: Store,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queues, self._left_out, self.timer = queues, left_out, timer
        self._aside = store.capabilities.requests_at_once > 1
        self._swept_at = -1e9
        self._thread = SweepThread()

    def attend(self, now: int) -> None:
        """Sweep queues whose time has come: all, or as many as it takes no longer than a moment to begin with.

        Of many queues one, the one that was not swept for the longest time, and the next some seconds later.
        """
        due = [queue for queue in self._queues if queue.has_to_sweep(now)]
        if not due or self._thread.is_busy:
            return
        began, many = self.timer(), len(self._queues) > FEW_QUEUES
        pause = min(SWEEP_PAUSE, LONGEST_SWEEP_TURN / len(self._queues)) if many else 0.0
        is_pausing = began - self._swept_at < pause
        due = [
            queue
            for queue in sorted(due, key=lambda queue: queue.upkeep.swept_at)
            if queue.name not in self._left_out and (queue.upkeep.is_broken_off or not is_pausing)
        ]
        if not due:
            return
        if not is_pausing:
            self._swept_at = began
        if self._aside:
            self._thread.begin(partial(_sweep, due[:1] if many else due, now))
            return
        for queue in due:
            sweep = partial(queue.upkeep.sweep, now, large=queue.filter.seen_large, seconds=SWEEP_SECONDS)
            self._left_out.try_(queue, sweep, instead=None)
            if many or self.timer() - began > SWEEP_SECONDS:
                return  # the others are swept by the next calls

    def close(self) -> None:
        """Wait for a sweep that is under way, for some seconds."""
        self._thread.close()


def _sweep(queues: Iterable[QueueClaims], now: int) -> None:
    for queue in queues:
        with suppress(QueueNotFound):  # whoever receives finds it out
            queue.upkeep.sweep(now, large=queue.filter.seen_large)
