"""Keeping the leases of a micro-batch while it is worked on, from the driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from shardq.errors import ShardqError
from shardq.receiving.named_claims import ClaimName, NamedClaims

__all__ = ["Heartbeat"]

_log = logging.getLogger(__name__)


class Heartbeat:
    """A thread that extends some claims every few seconds. It ends with its process."""

    def __init__(self, claims: NamedClaims, names: Sequence[ClaimName], interval: float) -> None:
        self._claims, self._names, self._interval = claims, names, interval
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shardq-spark-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Extend nothing more; returns when nothing is being extended."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self._claims.extend(self._names)
            except ShardqError as error:
                _log.warning("the leases of a batch were not extended, trying again: %s", error)
