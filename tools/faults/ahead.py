"""What a prefetching consumer does before anybody asks it for a message, written down for the checker."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

from shardq.errors import ShardqError, StoreUnavailable
from shardq.receipt import MessageId
from shardq.storage.requests import Claim, Claimed, Extend, Fenced
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

from .assignment import Assignment
from .dial import Dial, true_monotonic_ns
from .history import Event, Log, Phase

__all__ = ["Ahead"]


class Ahead(WrappedStore):
    """Logs every claim with its shard and the ids that it gave, and every request that counts deliveries."""

    def __init__(self, inner: Store, assignment: Assignment, dial: Dial) -> None:
        super().__init__(inner)
        self._name, self._dial = f"{assignment.name}/ahead", dial
        self._shifts = assignment.store_goes_by_clock
        self._log = Log(Path(assignment.log))
        self._numbers, self._lock = count(1), threading.Lock()

    def claim(self, request: Claim) -> Claimed:
        """Claim, and write down what."""
        number = self._begin("claim", str(request.shard))
        try:
            claimed = super().claim(request)
        except ShardqError as error:
            self._end(number, "claim", _phase(error))
            raise
        ids = tuple(
            str(MessageId(request.shard, piece.bundle.id, position))
            for piece in claimed.slices
            for position in range(piece.first, piece.first + piece.count)
        )
        self._end(number, "claim", Phase.OK, ids)
        return claimed

    def extend(self, request: Extend) -> Fenced:
        """Extend; write down whether the deliveries that it starts were counted."""
        if not request.starts:
            return super().extend(request)
        number = self._begin("start", str(request.shard))
        try:
            fenced = super().extend(request)
        except ShardqError as error:
            self._end(number, "start", _phase(error))
            raise
        self._end(number, "start", Phase.OK)
        return fenced

    def _begin(self, verb: str, shard: str) -> int:
        with self._lock:
            number = next(self._numbers)
        self._write(number, verb, Phase.INVOKE, (), shard)
        return number

    def _end(self, number: int, verb: str, phase: Phase, ids: tuple[str, ...] = ()) -> None:
        self._write(number, verb, phase, ids)

    def _write(self, number: int, verb: str, phase: Phase, ids: tuple[str, ...], note: str = "") -> None:
        shift = self._dial.ahead if self._shifts else 0
        at = true_monotonic_ns()
        event = Event(
            at=at,
            shift=shift,
            actor=self._name,
            number=number,
            verb=verb,
            phase=phase,
            bodies=ids,
            note=note,
        )
        self._log.write(event)


def _phase(error: ShardqError) -> Phase:
    return Phase.FAILED if isinstance(error, StoreUnavailable) else Phase.UNKNOWN
