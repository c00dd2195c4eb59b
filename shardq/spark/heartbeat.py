"""Keeping the leases of a micro-batch while it is worked on, from the driver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from shardq.receiving.named_claims import ClaimName, NamedClaims

__all__ = ["Heartbeat"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25


class Heartbeat:
    """A thread that extends some claims every few seconds, until ``finish`` returns True. Ends with its process.

    ``finish`` is asked four times a second; None: the claims are finished elsewhere.
    """

    def __init__(
        self,
        claims: NamedClaims,
        names: Sequence[ClaimName],
        interval: float,
        finish: Callable[[], bool] | None = None,
    ) -> None:
        self._claims, self._names, self._interval, self._finish = claims, names, interval, finish
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shardq-spark-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Extend and finish nothing more; returns when nothing is being extended."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._interval if self._finish is None else min(LOOK_SECONDS, self._interval)
        extended = time.monotonic()
        while not self._stopped.wait(pause):
            if self._finish is not None and self._tried(self._finish, "was not acked when it was committed"):
                return
            if time.monotonic() - extended >= self._interval:
                extended = time.monotonic()
                self._tried(self._extend, "may lose its leases, which were not extended")

    def _extend(self) -> bool:
        self._claims.extend(self._names)
        return True

    def _tried(self, step: Callable[[], bool], otherwise: str) -> bool:
        try:
            return step()
        except Exception as error:  # if the thread ended, the leases would
            _log.warning("a batch %s, trying again: %s", otherwise, error)
            return False
