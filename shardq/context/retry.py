"""Repeating calls to the store after passing faults.

Every method of the port is idempotent, so repeating is always safe; what a caller may have to know is whether
an earlier attempt could have been carried out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, ParamSpec, TypeVar

import msgspec
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from shardq.context.counters import Counters
from shardq.errors import OutcomeUnknown, ShardqError

__all__ = ["Answer", "Retry"]

P = ParamSpec("P")
T = TypeVar("T")


class Answer(msgspec.Struct, Generic[T], frozen=True):
    """A result, and whether an earlier attempt at the same call may have been carried out."""

    value: T
    after_unknown: bool


class Retry:
    """Calls the store and repeats what failed for a passing reason, with random, growing pauses, for some seconds.

    With 0 seconds nothing is repeated.
    """

    def __init__(self, seconds: float, counters: Counters) -> None:
        self._seconds = seconds
        self._counters = counters
        self._here = threading.local()

    @contextmanager
    def within(self, seconds: float | None = None) -> Iterator[None]:
        """All that this thread calls meanwhile is repeated for so many seconds together (None: as long as one call).

        With 0 nothing is repeated. What is within another such block gets no more than that one has left.
        """
        outer: float | None = getattr(self._here, "until", None)
        until = time.monotonic() + (self._seconds if seconds is None else min(seconds, self._seconds))
        self._here.until = until if outer is None else min(until, outer)
        try:
            yield
        finally:
            self._here.until = outer

    @property
    def repeats(self) -> bool:
        """True when a call that fails now is repeated."""
        return self._left > 0

    @property
    def _left(self) -> float:
        until: float | None = getattr(self._here, "until", None)
        return self._seconds if until is None else until - time.monotonic()

    def __call__(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The operation's result; OutcomeUnknown if any attempt may have been carried out, else the last error."""
        return self.ask(operation, *args, **kwargs).value

    def ask(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Answer[T]:
        """Like calling, and says whether an earlier attempt may have been carried out."""
        try:
            return Answer(operation(*args, **kwargs), after_unknown=False)
        except ShardqError as error:
            if not self.repeats or not _passing(error):
                raise
            return self._repeat(isinstance(error, OutcomeUnknown), operation, *args, **kwargs)

    def _repeat(
        self, unknown: bool, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Answer[T]:
        def note(state: RetryCallState) -> None:
            nonlocal unknown
            error = state.outcome.exception() if state.outcome else None
            unknown = unknown or isinstance(error, OutcomeUnknown)

        attempts = Retrying(
            stop=stop_after_delay(self._left),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            retry=retry_if_exception(_passing),
            after=note,
            reraise=True,
        )
        self._counters.add(retries=1)
        try:
            return Answer(attempts(operation, *args, **kwargs), after_unknown=unknown)
        except ShardqError as error:
            if unknown and not isinstance(error, OutcomeUnknown):
                raise OutcomeUnknown(
                    f"an attempt was not answered, and repeating it failed: {error}"
                ) from error
            raise


def _passing(error: BaseException) -> bool:
    return isinstance(error, ShardqError) and error.retryable
