"""The claims of a consumer, which may come before anybody asks it for a message, written down for the checker."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.errors import ShardqError, StoreUnavailable
from shardq.storage.requests import Claim, Claimed, Extend, Fenced
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

from .assignment import Assignment
from .dial import Dial, true_monotonic_ns
from .history import CLAIMS, Event, Log, Phase

__all__ = ["LoggedClaims"]


class LoggedClaims(WrappedStore):
    """Logs every claim with its shard and the ids that it gave, and every request that counts deliveries.

    A prefetching consumer counts a delivery when it hands the message out; others count it with the claim. A claim that
    is repeated under its token is one operation.
    """

    def __init__(self, inner: Store, assignment: Assignment, dial: Dial) -> None:
        super().__init__(inner)
        self._name, self._dial = f"{assignment.name}{CLAIMS}", dial
        self._shifts = assignment.store_goes_by_clock
        self._log = Log(Path(assignment.log))
        self._numbers, self._lock = count(1), threading.Lock()
        self._unanswered: dict[bytes, int] = {}  # the number of each, by its token

    def claim(self, request: Claim) -> Claimed:
        """Claim, and write down what."""
        verb = "take" if request.started else "claim"
        with self._lock:
            earlier = self._unanswered.pop(request.token, None)
            number = next(self._numbers) if earlier is None else earlier
        if earlier is None:
            self._write(number, verb, Phase.INVOKE, (), str(request.shard))
        try:
            claimed = super().claim(request)
            self._write(number, verb, Phase.OK, _ids(request.shard, claimed))
        except BaseException as error:  # also an interrupt, after which it may be repeated
            phase = Phase.UNKNOWN if earlier else _phase(error)
            if phase is Phase.UNKNOWN:
                self._unanswered[request.token] = number
            self._write(number, verb, phase, ())
            raise
        return claimed

    def extend(self, request: Extend) -> Fenced:
        """Extend; write down whether the deliveries that it starts were counted."""
        if not request.starts:
            return super().extend(request)
        with self._lock:
            number = next(self._numbers)
        self._write(number, "start", Phase.INVOKE, (), str(request.shard))
        try:
            fenced = super().extend(request)
        except ShardqError as error:
            self._write(number, "start", _phase(error), ())
            raise
        self._write(number, "start", Phase.OK, ())
        return fenced

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


def _ids(shard: Shard, claimed: Claimed) -> tuple[str, ...]:
    return tuple(
        str(MessageId(shard, piece.bundle.id, position))
        for piece in claimed.slices
        for position in range(piece.first, piece.first + piece.count)
    )


def _phase(error: BaseException) -> Phase:
    return Phase.FAILED if isinstance(error, StoreUnavailable) else Phase.UNKNOWN
