"""Extending leases in the background while their messages are worked on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from shardq.delivery.held import Fate, HeldSlice, Pick
from shardq.delivery.settlement import Settlement
from shardq.errors import ShardqError

__all__ = ["LeaseKeeper"]

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """A thread that extends the leases of unsettled messages every third of a lease.

    It ends with its process: the messages of a worker that died come back when their lease is over. Those of
    one that hangs do not.
    """

    def __init__(self, settlement: Settlement, lease: int) -> None:
        self._settlement, self._lease = settlement, lease
        self._lock = threading.Lock()
        self._held: list[HeldSlice] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shardq-lease-keeper", daemon=True)
        self._thread.start()

    def keep(self, held: Sequence[HeldSlice]) -> None:
        """Extend these from now on, until they are settled."""
        with self._lock:
            self._held.extend(held)

    def stop(self) -> None:
        """Extend nothing more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._lease / 3_000_000):
            with self._lock:
                self._held = [piece for piece in self._held if piece.open]
                held = list(self._held)
            try:
                self._settlement.keep(
                    [Pick(piece, piece.positions(Fate.OPEN)) for piece in held], self._lease
                )
            except ShardqError as error:
                _log.warning("leases of %d slices were not extended, trying again: %s", len(held), error)
