"""The queues of a consumer that are left out, as they failed: the others go on, and they are tried again soon."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import msgspec

from shardq.core.context.retry import Retry
from shardq.core.receiving.claiming import QueueClaims
from shardq.errors import OutcomeUnknown, QueueNotFound, ShardqError, StoreUnavailable

__all__ = ["LeftOut"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

LEFT_OUT_SECONDS = 1.0  # until a queue that failed is tried again


class _Failure(msgspec.Struct, frozen=True):
    """Why a queue is left out, and since when."""

    error: ShardqError
    since: float


class LeftOut:
    """Which queues are left out, and why. Of one queue alone errors are raised."""

    def __init__(
        self, queues: Sequence[str], retry: Retry, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._queues, self._retry, self.timer = queues, retry, timer
        self._failures: dict[str, _Failure] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._failures

    def __bool__(self) -> bool:
        return bool(self._failures)

    def try_(
        self, queue: QueueClaims, do: Callable[[], T], *, instead: T, patience: float | None = None
    ) -> T:
        """Do it. If there are other queues, one that fails is left out, unless a message of it may have been acked."""
        if len(self._queues) == 1:
            return do()
        try:
            with self._retry.within(patience):
                return do()
        except (StoreUnavailable, OutcomeUnknown, QueueNotFound) as error:
            if queue.may_have_finished:
                raise
            self.add(queue.name, error)
            return instead

    def add(self, name: str, error: ShardqError) -> None:
        """Leave a queue out."""
        if name not in self._failures:
            _log.warning("queue %s is left out until it can be read: %s", name, error)
        self._failures[name] = _Failure(error, self.timer())

    def rests(self, name: str) -> bool:
        """True for a moment after a queue has failed."""
        failure = self._failures.get(name)
        return failure is not None and self.timer() - failure.since < LEFT_OUT_SECONDS

    def take_back(self, read: Collection[str], began: float) -> None:
        """Leave out no longer those of the queues that did not fail since then."""
        for name in read:
            failure = self._failures.get(name)
            if failure is not None and failure.since < began:
                del self._failures[name]
                _log.warning("queue %s can be read again", name)

    def raise_if_any(self, *, thorough: bool) -> None:
        """Raise the error of one that is left out: unless it is thorough, only if all are."""
        errors = [self._failures[name].error for name in self._queues if name in self._failures]
        if errors and (thorough or len(errors) == len(self._queues)):
            raise min(errors, key=lambda error: error.retryable)
