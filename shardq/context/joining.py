"""Joining the requests that several threads make at the same time, as a group commit does.

If no request is under way, a thread makes its own at once. Threads that come while one is under way wait. When it has
ended, one of them leads: it makes one request for all that wait. Each caller returns when its own part is done, with
its own result or error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from shardq.errors import OutcomeUnknown, ShardqError
from shardq.outgoing_message import OutgoingMessage
from shardq.storage.per_process import PerProcess
from shardq.storage.requests import Acknowledge, Extend, Fenced, Release, Span
from shardq.storage.slicing import Range, covered
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["Joining", "JoiningStore", "Pending", "for_another_thread"]

T = TypeVar("T")
R = TypeVar("R")
Settle: TypeAlias = Acknowledge | Extend | Release

MOST_SPANS = 2_000  # in a joined request


class Pending(Generic[T, R]):
    """What one caller asks for, and its result or error."""

    def __init__(self, item: T) -> None:
        self.item = item
        self.result: R | None = None
        self.error: BaseException | None = None
        self.turn: threading.Event | None = None  # of a caller that waits; set when it is done, or is to lead
        self.leads = False

    @property
    def done(self) -> bool:
        """True when there is a result or an error."""
        return self.result is not None or self.error is not None

    def wake(self) -> None:
        """Let the waiting caller go on."""
        if self.turn is not None:
            self.turn.set()


class _Waiters(Generic[T, R]):
    """The callers of one process that wait, by what may be joined. A key is there while one of them leads."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.waiting: dict[Hashable, list[Pending[T, R]]] = {}


class Joining(Generic[T, R]):
    """Makes one request for the callers that come at the same time.

    ``do`` makes the request for one or more callers, and gives each its result or error; an error that it raises is
    everybody's. ``together`` says how many of the items that wait may go together, from the first on. With ``linger`` a
    leader waits for others: up to so many seconds, or until there are ``enough``.
    """

    def __init__(
        self,
        do: Callable[[Sequence[Pending[T, R]]], None],
        together: Callable[[Sequence[T]], int],
        *,
        linger: float = 0.0,
        enough: int = 1,
    ) -> None:
        self._do, self._together, self._linger, self._enough = do, together, linger, enough
        self._waiters: PerProcess[_Waiters[T, R]] = PerProcess(_Waiters)

    def submit(self, key: Hashable, item: T) -> R:
        """Do it, together with what others submit under the same key; returns its result or raises its error."""
        own: Pending[T, R] = Pending(item)
        waiters = self._waiters.get()
        try:
            self._enter(waiters, key, own)
            if own.turn is not None:
                own.turn.wait()
            if not own.done:
                self._lead(waiters, key, own)
        except BaseException:
            _leave(waiters, key, own)
            raise
        if own.error is not None:
            raise own.error
        assert own.result is not None
        return own.result

    def _enter(self, waiters: _Waiters[T, R], key: Hashable, own: Pending[T, R]) -> None:
        with waiters.changed:
            waiting = waiters.waiting.get(key)
            if waiting is None:
                own.leads, waiters.waiting[key] = True, [own]
                return
            own.turn = threading.Event()
            waiting.append(own)
            if self._linger:
                waiters.changed.notify_all()

    def _lead(self, waiters: _Waiters[T, R], key: Hashable, own: Pending[T, R]) -> None:
        group: Sequence[Pending[T, R]] = ()
        try:
            group = self._gather(waiters, key)
            self._do(group)
        except BaseException as error:
            for each in group:
                if each is not own and not each.done:
                    each.error = for_another_thread(error)
            raise
        finally:
            _leave(waiters, key, own)
            for each in group:
                if each is not own:
                    each.wake()

    def _gather(self, waiters: _Waiters[T, R], key: Hashable) -> Sequence[Pending[T, R]]:
        with waiters.changed:
            waiting = waiters.waiting[key]
            if self._linger:
                waiters.changed.wait_for(lambda: len(waiting) >= self._enough, self._linger)
            count = 1 if len(waiting) == 1 else self._together([each.item for each in waiting])
            group = waiting[:count]
            del waiting[:count]
            return group


def _leave(waiters: _Waiters[T, R], key: Hashable, own: Pending[T, R]) -> None:
    """Wait no more, and let the next caller lead if this one did. An interrupted caller may still be waiting."""
    with waiters.changed:
        waiting = waiters.waiting.get(key, [])
        if own in waiting:
            waiting.remove(own)
        if not own.leads:
            return
        own.leads = False
        if waiting:
            waiting[0].leads = True
            waiting[0].wake()
        else:
            del waiters.waiting[key]


def for_another_thread(error: BaseException, unsent: Sequence[OutgoingMessage] = ()) -> BaseException:
    """The error that a thread raises for one that another thread met: a copy, as raising an error changes it."""
    if not isinstance(error, Exception):  # only the other thread is to end
        told: BaseException = OutcomeUnknown("the thread that did this was interrupted", unsent=unsent)
    elif isinstance(error, ShardqError):
        told = type(error).__new__(type(error), *error.args)
        told.__dict__.update(error.__dict__)
        if isinstance(told, OutcomeUnknown):
            told.unsent = tuple(unsent)
    else:
        return error
    told.__cause__ = error
    return told


class JoiningStore(WrappedStore):
    """A store that joins the acks, releases and extensions of a shard that come at the same time.

    A caller's answer tells of its own messages only. If the store refuses a joined request, each part is asked alone,
    so that nobody meets the error of another. ``check`` is called before each request: the client may have been closed
    while the callers waited.
    """

    def __init__(self, inner: Store, check: Callable[[], None] = lambda: None) -> None:
        super().__init__(inner)
        self._check = check
        self._joining: Joining[Settle, Fenced] = Joining(self._settle, _disjoint)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish what is still held. Joined with other such requests of the shard."""
        return self._joining.submit(_kind(request), request)

    def extend(self, request: Extend) -> Fenced:
        """Hide what is still held until now + lease. Joined with requests of the shard that have the same options."""
        return self._joining.submit(_kind(request), request)

    def release(self, request: Release) -> Fenced:
        """Give back what is still held. Joined with requests of the shard that have the same options."""
        return self._joining.submit(_kind(request), request)

    def _settle(self, group: Sequence[Pending[Settle, Fenced]]) -> None:
        self._check()
        if len(group) == 1:
            group[0].result = self._ask(group[0].item)
            return
        spans = tuple(span for each in group for span in each.item.spans)
        try:
            fenced = self._ask(msgspec.structs.replace(group[0].item, spans=spans))
        except Exception as error:
            if isinstance(error, ShardqError) and error.retryable:
                raise
            self._settle_alone(group)
            return
        for each in group:
            each.result = _own_part(fenced, each.item.spans)

    def _settle_alone(self, group: Sequence[Pending[Settle, Fenced]]) -> None:
        for each in group:
            try:
                each.result = self._ask(each.item)
            except Exception as error:
                each.error = error

    def _ask(self, request: Settle) -> Fenced:
        if isinstance(request, Acknowledge):
            return self.inner.acknowledge(request)
        return self.inner.extend(request) if isinstance(request, Extend) else self.inner.release(request)


def _kind(request: Settle) -> Hashable:
    """What requests must have in common to be joined: everything but the messages, whatever fields they get."""
    return msgspec.structs.replace(request, spans=())


def _disjoint(requests: Sequence[Settle]) -> int:
    """How many of the requests, from the first on, name no message twice. One that names a message again waits."""
    seen: dict[tuple[bytes, bytes], list[Range]] = {}
    spans = 0
    for number, request in enumerate(requests):
        spans += len(request.spans)
        if number and (spans > MOST_SPANS or any(_is_seen(span, seen) for span in request.spans)):
            return number
        for span in request.spans:
            seen.setdefault((span.bundle_id, span.token), []).append((span.first, span.first + span.count))
    return len(requests)


def _is_seen(span: Span, seen: dict[tuple[bytes, bytes], list[Range]]) -> bool:
    ranges = seen.get((span.bundle_id, span.token))
    return ranges is not None and bool(covered(span, ranges))


def _own_part(fenced: Fenced, spans: Iterable[Span]) -> Fenced:
    """The part of an answer that is about these messages."""
    if not fenced.lost and not fenced.gone:
        return fenced
    named = list(spans)
    return Fenced(_within(fenced.lost, named), _within(fenced.gone, named))


def _within(told: Sequence[Span], named: Sequence[Span]) -> tuple[Span, ...]:
    ranges: dict[tuple[bytes, bytes], list[Range]] = {}
    for span in told:
        ranges.setdefault((span.bundle_id, span.token), []).append((span.first, span.first + span.count))
    return tuple(
        part for span in named for part in covered(span, ranges.get((span.bundle_id, span.token), ()))
    )
