"""Repeating calls to the store after temporary faults, and collecting the errors of shards while others continue.

Every method of the port is idempotent, so repeating is always safe. A caller may have to know whether an earlier
attempt may have been carried out.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Generic, ParamSpec, TypeVar

import msgspec

from shardq.base.shard import Shard
from shardq.errors import Closed, OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.abilities import TransactionEnded
from shardq.storage.requests import Claim, Claimed
from shardq.storage.store import Store
from shardq.storage.writing import reporting_done

__all__ = ["RETRY_SECONDS", "Answer", "Failures", "Retry", "claim_patiently", "patiently"]


RETRY_SECONDS = 15.0
_PAUSES = (
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.4,
)  # seconds between claims; each is made up to half longer or shorter
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds; a pause takes a random part of it

P = ParamSpec("P")
T = TypeVar("T")


class Answer(msgspec.Struct, Generic[T], frozen=True):
    """A result, and whether an earlier attempt at the call may have been carried out."""

    value: T
    after_unknown: bool


class _ThreadState(threading.local):
    """The limits of the calls of one thread."""

    until: float | None = None  # the moment after which nothing is repeated
    ended: Callable[[], bool] | None = None  # returns whether nothing is to be repeated any more
    refuses: bool = False  # then no call is begun either


class _Within(msgspec.Struct):
    """A block whose calls repeat nothing after a moment. A class, as many requests to a store are in such a block."""

    here: _ThreadState
    until: float
    outer: float | None = None

    def __enter__(self) -> None:
        self.outer = outer = self.here.until
        until = self.until
        self.here.until = until if outer is None or until < outer else outer

    def __exit__(self, *error: object) -> None:
        self.here.until = self.outer


class Retry:
    """Calls the store, and repeats calls that fail with a retryable error for some seconds. Pauses are random and grow.

    With 0 seconds nothing is repeated. After :meth:`close` nothing is called any more. A call that was under way then
    may have connected again, so ``late`` is called when it ends.
    """

    def __init__(
        self,
        seconds: float,
        repeated: Callable[[], None] = lambda: None,
        late: Callable[[], None] = lambda: None,
    ) -> None:
        self.seconds, self._repeated, self._late = seconds, repeated, late
        self._here = _ThreadState()
        self.closed = False
        """True after :meth:`close`."""

    def close(self) -> None:
        """Refuse all further calls, in every thread."""
        self.closed = True

    def check_open(self) -> None:
        """Raise Closed after :meth:`close`."""
        if self.closed:
            raise Closed(
                "this client is closed: open another one with shardq.connect() or client.transaction()"
            )

    def within(
        self, seconds: float | None = None, *, since: float | None = None
    ) -> AbstractContextManager[None]:
        """Limit the repetitions of all calls that this thread makes in the block to this number of seconds together.

        None: to the seconds of one call. With 0 nothing is repeated. They count from now on, or from ``since``, an
        earlier moment of ``time.monotonic()``. A block within another one gets no more time than that one has left.
        """
        seconds = self.seconds if seconds is None else min(seconds, self.seconds)
        return _Within(self._here, (time.monotonic() if since is None else since) + seconds)

    def until(self, moment: float, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something, none of whose calls is repeated after a moment of ``time.monotonic()``; 0: none is at all."""
        here = self._here
        outer = here.until
        here.until = moment if outer is None or moment < outer else outer
        try:
            return do(*args, **kwargs)
        finally:
            here.until = outer

    @contextmanager
    def unless(self, ended: Callable[[], bool], *, refuse: bool = True) -> Iterator[None]:
        """Repeat none of this thread's calls in the block once ``ended`` returns true; refuse those that begin then.

        :meth:`within` gives each call at least one attempt, which takes long where the store is unreachable. Without
        ``refuse`` each call still has that attempt, which completes the work in progress if the store is there.
        """
        self._here.ended, self._here.refuses = ended, refuse
        try:
            yield
        finally:
            self._here.ended, self._here.refuses = None, False

    @property
    def _has_ended(self) -> bool:
        ended = self._here.ended
        return ended is not None and ended()

    @property
    def repeats(self) -> bool:
        """True when a call that fails now is repeated."""
        return self._left > 0

    @property
    def _left(self) -> float:
        until = self._here.until
        return self.seconds if until is None else until - time.monotonic()

    def __call__(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the operation's result.

        Raises OutcomeUnknown if any attempt may have been carried out, else the last error.
        """
        if self.closed or self._here.ended is not None:
            self.check_allowed()
        try:
            return operation(*args, **kwargs)
        except ShardqError as error:
            return self._repeat(error, operation, *args, **kwargs).value
        finally:
            if self.closed:
                self._end_late()

    def ask(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Answer[T]:
        """Call the operation, and report also whether an earlier attempt may have been carried out."""
        if self.closed or self._here.ended is not None:
            self.check_allowed()
        try:
            return Answer(operation(*args, **kwargs), after_unknown=False)
        except ShardqError as error:
            return self._repeat(error, operation, *args, **kwargs)
        finally:
            if self.closed:
                self._end_late()

    def verified(
        self, is_made: Callable[[], bool], change: Callable[P, bool], *args: P.args, **kwargs: P.kwargs
    ) -> bool:
        """Make a change of what is as it was seen; True when it is made.

        After an attempt that was not answered, or that found something else, ``is_made`` verifies it. Raises
        OutcomeUnknown where the change may be made and that read fails.
        """
        unknown = False
        with reporting_done(lambda: "the change may be made: repeat the call" if unknown else ""):
            try:
                answer = self.ask(change, *args, **kwargs)
            except OutcomeUnknown:
                unknown = True
                if not is_made():
                    raise
                return True
            unknown = answer.after_unknown
            return answer.value or is_made()

    def check_allowed(self) -> None:
        """Raise Closed after :meth:`close`, and StoreUnavailable where :meth:`unless` refuses what begins now."""
        self.check_open()
        if self._here.refuses and self._has_ended:
            raise StoreUnavailable("the store was not asked, as there was no time left for that")

    def _end_late(self) -> None:
        with suppress(ShardqError):  # the call has its own answer
            self._late()

    def _repeat(
        self, error: ShardqError, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Answer[T]:
        """Repeat after a first attempt, whose error is raised again where nothing is repeated."""
        if not error.retryable or not self.repeats:
            raise error
        self._repeated()
        unknown = isinstance(error, OutcomeUnknown)
        until = time.monotonic() + self._left
        longest = _FIRST_PAUSE
        while True:
            if self.closed and unknown:
                raise OutcomeUnknown("the client was closed before the store said whether it made the change")
            self.check_open()
            try:
                return Answer(operation(*args, **kwargs), after_unknown=unknown)
            except ShardqError as again:
                unknown = unknown or isinstance(again, OutcomeUnknown)
                if not again.retryable or self._has_ended or time.monotonic() >= until:
                    if unknown and not isinstance(again, OutcomeUnknown):
                        raise OutcomeUnknown(
                            f"an attempt was not answered, and repeating it failed: {again}"
                        ) from again
                    raise
            time.sleep(random.uniform(0, longest))
            longest = min(2 * longest, _LONGEST_PAUSE)


_NAMED = 3  # shards that an error names


class Failures(dict[Shard, ShardqError]):
    """The last error of each shard that failed. At the end one error names all of them."""

    @property
    def unknown(self) -> bool:
        """True when something may have been done in one of them."""
        return any(isinstance(error, OutcomeUnknown) for error in self.values())

    def add(self, shard: Shard, error: ShardqError) -> None:
        """Note the error of a shard. After an unanswered attempt no later refusal makes the outcome known."""
        is_refusal = isinstance(error, StoreUnavailable | Closed)
        if is_refusal and isinstance(self.get(shard), OutcomeUnknown):
            return
        self[shard] = error

    def take_over(self, other: Failures) -> None:
        """Add the errors of another collection."""
        for shard, error in other.items():
            self.add(shard, error)

    @property
    def retryable(self) -> list[Shard]:
        """The shards that may succeed when they are asked again."""
        return [shard for shard, error in self.items() if error.retryable]

    def error(self, what: str, *, done: bool = False) -> ShardqError:
        """Return one error for all shards, which it names. An error that is not the store's is returned as it is.

        So is Closed, which says that nothing was changed; unless something was ``done``, or may be in another shard.
        """
        for error in self.values():
            if isinstance(error, TransactionEnded) or not isinstance(
                error, StoreUnavailable | OutcomeUnknown | Closed
            ):
                return error
        unknown = [shard for shard, error in self.items() if isinstance(error, OutcomeUnknown)]
        closed = [shard for shard, error in self.items() if isinstance(error, Closed)]
        cause = self[min(unknown or closed or self)]
        if closed and not unknown and not done:
            return cause
        text = f"{what} in {_names(self)}: {cause}"
        if unknown or closed:
            joined: ShardqError = OutcomeUnknown(text)
        else:
            retryable = all(error.retryable for error in self.values())
            joined = StoreUnavailable(text, retryable=retryable)
        joined.__cause__ = cause
        return joined


def _names(shards: Iterable[Shard]) -> str:
    names = sorted(shards)
    if len(names) == 1:
        return f"shard {names[0]}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} shards ({', '.join(map(str, names[:_NAMED]))}{more})"


def claim_patiently(retry: Retry, store: Store, request: Claim) -> Claimed:
    """Claim, and again while the answer is that others were quicker; after about 0.8 seconds the last answer counts."""
    return patiently(lambda: retry(store.claim, request), lambda claimed: claimed.contended)


def patiently(claim: Callable[[], T], is_contended: Callable[[T], bool]) -> T:
    """Claim in any way, and again while others were quicker; after about 0.8 seconds the last answer counts."""
    for pause in _PAUSES:
        claimed = claim()
        if not is_contended(claimed):
            return claimed
        time.sleep(pause * random.uniform(0.5, 1.5))
    return claim()
