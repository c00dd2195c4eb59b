"""Keeping the leases of a micro-batch while it is worked on.

The driver does so until the batch is finished, and each task for its own claims while it reads. So a driver that stands
still costs nothing while tasks read; after that it may stand still until the leases are over that were extended last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from shardq.base.closing import Closing
from shardq.core.receiving.claim_entries import ClaimName
from shardq.core.receiving.named_claims import NamedClaims

__all__ = ["Heartbeat", "interval_of"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
MOST_SECONDS = 30.0


def interval_of(lease: float) -> float:
    """After how many seconds a lease of so many is extended again: what is left of it then is what a pause may take."""
    return min(lease / 3, MOST_SECONDS)


class Heartbeat(Closing):
    """A thread that extends some claims every few seconds, until ``finish`` returns True. Ends with its process.

    More names may come to the claims while it runs. ``finish`` is asked four times a second; None: the claims are
    finished elsewhere. ``at_once`` is how many claims are extended together, which takes a connection for each eight.
    """

    def __init__(
        self,
        claims: NamedClaims,
        names: Sequence[ClaimName],
        interval: float,
        finish: Callable[[], bool] | None = None,
        *,
        at_once: int = 1_000_000,
    ) -> None:
        self._claims, self._names, self._interval, self._finish = claims, names, interval, finish
        self._at_once = at_once
        self._stopped, self._finished = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="shardq-spark-heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Extend and finish nothing more; returns when nothing is being extended."""
        self._stopped.set()
        self._thread.join()

    def close_finishing(self) -> None:
        """The same, but for a last look whether the claims are to be finished."""
        self.close()
        if self._finish is not None and not self._finished:
            self._tried(self._finish, "was not acked when the query ended")

    def _run(self) -> None:
        pause = self._interval if self._finish is None else min(LOOK_SECONDS, self._interval)
        extended = time.monotonic()
        while not self._stopped.wait(pause):
            if self._finish is not None and self._tried(self._finish, "was not acked when it was committed"):
                self._finished = True
                return
            if time.monotonic() - extended >= self._interval:
                extended = time.monotonic()
                self._extend_all()

    def _extend_all(self) -> None:
        names = list(self._names)
        for start in range(0, len(names), self._at_once):
            extend = partial(self._extend, names[start : start + self._at_once])
            self._tried(extend, "may lose its leases, which were not extended")

    def _extend(self, names: Sequence[ClaimName]) -> bool:
        self._claims.extend(names)
        return True

    def _tried(self, step: Callable[[], bool], otherwise: str) -> bool:
        try:
            return step()
        except Exception as error:  # if the thread ended, the leases would
            _log.warning("a batch %s, trying again: %s", otherwise, error)
            return False
