"""Sweeping the queues of one consumer now and then, so that no message waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial

from shardq.context.retry import Retry
from shardq.errors import QueueNotFound, ShardqError
from shardq.receiving.claiming import QueueClaims
from shardq.receiving.left_out import LeftOut
from shardq.storage.store import Store

__all__ = ["Sweeping"]

SWEEP_SECONDS = 0.05  # after which messages come first again
FEW_QUEUES = 5  # that are swept once a minute each; more of them one by one,
SWEEP_PAUSE = 12.0  # seconds apart, or in as many turns as
LONGEST_SWEEP_TURN = 600.0  # seconds give, for all of them
CLOSING_SECONDS = 5.0  # for which the end of a consumer waits for a sweep that is under way


class Sweeping:
    """Sweeps queues when it is their turn.

    A sweep looks at every shard, which takes up to seconds over a network. Where the store takes several requests
    ``at_once`` a thread does it ``aside``, and whoever receives goes on.
    """

    def __init__(
        self, queues: Collection[QueueClaims], left_out: LeftOut, store: Store, retry: Retry
    ) -> None:
        self._queues, self._left_out, self._store, self._retry = queues, left_out, store, retry
        self._aside = store.capabilities.requests_at_once > 1
        self._swept_at = -1e9
        self._thread: threading.Thread | None = None

    def attend(self, now: int) -> None:
        """Sweep queues whose time has come: all, or as many as it takes no longer than a moment to begin with.

        Of many queues one, the one that was not swept for the longest time, and the next some seconds later.
        """
        due = [queue for queue in self._queues if queue.has_to_sweep(now)]
        if not due or (self._thread is not None and self._thread.is_alive()):
            return
        began, many = time.monotonic(), len(self._queues) > FEW_QUEUES
        if many and began - self._swept_at < min(SWEEP_PAUSE, LONGEST_SWEEP_TURN / len(self._queues)):
            return
        due = [
            queue
            for queue in sorted(due, key=lambda queue: queue.swept_at)
            if queue.name not in self._left_out
        ]
        if not due:
            return
        self._swept_at = began
        if self._aside:
            thread = threading.Thread(
                target=self._sweep, args=(due[:1] if many else due, now), name="shardq-sweep", daemon=True
            )
            with suppress(RuntimeError):  # the interpreter is about to end, or there are too many threads
                thread.start()
                self._thread = thread
            return
        for queue in due:
            self._left_out.try_(queue, partial(queue.sweep, now), instead=None)
            if many or time.monotonic() - began > SWEEP_SECONDS:
                return  # the others are swept by the next calls

    def close(self) -> None:
        """Wait for a sweep that is under way, for some seconds."""
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    def _sweep(self, queues: Iterable[QueueClaims], now: int) -> None:
        for queue in queues:
            with suppress(QueueNotFound):  # whoever receives finds it out
                queue.sweep(now)
        if self._retry.closed:  # meanwhile; a sweep that went on has made connections of its own
            with suppress(ShardqError):
                self._store.close()
