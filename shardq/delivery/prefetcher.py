"""Claiming messages ahead of their consumer."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from shardq.delivery.context import QueueContext
from shardq.delivery.held import Fate, HeldSlice, Pick
from shardq.delivery.idling import Idling
from shardq.delivery.receiving import Receiving
from shardq.delivery.settlement import Settlement
from shardq.errors import ShardqError

__all__ = ["Prefetcher"]

_log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.1


class Prefetcher:
    """A thread that keeps up to ``size`` messages claimed and ready to be taken.

    Leases run while messages wait here; :meth:`take` renews those that are more than half over, and leaves
    out what was lost.
    """

    def __init__(
        self, context: QueueContext, receiving: Receiving, settlement: Settlement, size: int
    ) -> None:
        self._receiving, self._settlement, self._size = receiving, settlement, size
        self._context = context
        self._changed = threading.Condition()
        self._ready: deque[HeldSlice] = deque()
        self._stopped = False
        self._error: ShardqError | None = None
        self._idling = Idling(context, receiving.reader, lambda: self._stopped)
        self._thread = threading.Thread(target=self._run, name="shardq-prefetcher", daemon=True)
        self._thread.start()

    def take(self, limit: int, seconds: float) -> list[HeldSlice]:
        """Up to so many messages; waits so many seconds for the first. Raises what the thread ended with."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._error or self._stopped, seconds)
            taken = self._pop(limit)
            self._changed.notify_all()
            if not taken and self._error is not None:
                raise self._error
        return self._renewed(taken)

    def stop(self) -> None:
        """Claim nothing more, and give back what nobody has started to work on."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()
        picks = [Pick(piece, piece.positions(Fate.OPEN)) for piece in self._ready]
        self._ready.clear()
        try:
            self._settlement.release(picks, 0.0, started=False)
        except ShardqError as error:
            _log.warning("what was claimed ahead comes back when its lease is over: %s", error)

    def _run(self) -> None:
        while not self._stopped and self._error is None:
            try:
                self._fetch()
            except ShardqError as error:
                self._note(error)

    def _note(self, error: ShardqError) -> None:
        """Go on after a passing fault, which the library has repeated for a while; end with any other."""
        if error.retryable:
            _log.warning("nothing was claimed ahead, trying again: %s", error)
            time.sleep(PAUSE_SECONDS)
            return
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _fetch(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._room() > 0)
            room = 0 if self._stopped else self._room()
        held = self._receiving.fill(room, thorough=False) if room else []
        if not held:
            self._idling.sleep(1.0)
            return
        self._idling.reset()
        with self._changed:
            self._ready.extend(held)
            self._changed.notify_all()

    def _room(self) -> int:
        return self._size - sum(piece.count for piece in self._ready)

    def _pop(self, limit: int) -> list[HeldSlice]:
        taken: list[HeldSlice] = []
        while self._ready and limit > 0:
            piece = self._ready.popleft()
            if piece.count > limit:
                piece, rest = piece.split(limit)
                self._ready.appendleft(rest)
            taken.append(piece)
            limit -= piece.count
        return taken

    def _renewed(self, taken: list[HeldSlice]) -> list[HeldSlice]:
        half = self._context.store.now() + self._receiving.lease // 2
        picks = [Pick(piece, piece.positions(Fate.OPEN)) for piece in taken if piece.lease_until < half]
        if picks:
            self._settlement.keep(picks, self._receiving.lease)
        return [piece for piece in taken if piece.open]
