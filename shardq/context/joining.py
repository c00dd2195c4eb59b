"""Joining what many threads want of a store at the same time: group commit, led by whoever comes first.

Who finds nobody at work goes at once. While that request is under way the others gather behind it; one of them leads
the next request for all of them. Every caller returns only when its own part is done, with its own outcome.
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

MOST_SPANS = 2_000  # of several callers that are settled together


class Pending(Generic[T, R]):
    """What one caller wants, and what became of it."""

    def __init__(self, item: T) -> None:
        self.item = item
        self.result: R | None = None
        self.error: BaseException | None = None
        self.turn: threading.Event | None = (
            None  # it was done, or the caller is to lead; None: it leads at once
        )
        self.leads = False

    @property
    def done(self) -> bool:
        """True when it is known what became of it."""
        return self.result is not None or self.error is not None

    def wake(self) -> None:
        """Let the caller go on."""
        if self.turn is not None:
            self.turn.set()


class _Lines(Generic[T, R]):
    """The callers of one process, by what may be joined. There is a line while somebody leads it."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.waiting: dict[Hashable, list[Pending[T, R]]] = {}


class Joining(Generic[T, R]):
    """Does what callers want, several at once where they come at the same time.

    ``do`` gives each of some callers, one or more, its result or its error; what it raises all of them are told.
    ``together`` says how many of the first ones of a line may go together. With ``linger`` a leader waits for so many
    seconds for company, or until there are ``enough``.
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
        self._lines: PerProcess[_Lines[T, R]] = PerProcess(_Lines)

    def submit(self, key: Hashable, item: T) -> R:
        """Do it, together with what others want under the same key; returns or raises what became of it."""
        own: Pending[T, R] = Pending(item)
        lines = self._lines.get()
        try:
            self._enter(lines, key, own)
            if own.turn is not None:
                own.turn.wait()
            if not own.done:
                self._lead(lines, key, own)
        except BaseException:
            _leave(lines, key, own)
            raise
        if own.error is not None:
            raise own.error
        assert own.result is not None
        return own.result

    def _enter(self, lines: _Lines[T, R], key: Hashable, own: Pending[T, R]) -> None:
        with lines.changed:
            waiting = lines.waiting.get(key)
            if waiting is None:
                own.leads, lines.waiting[key] = True, [own]
                return
            own.turn = threading.Event()
            waiting.append(own)
            if self._linger:
                lines.changed.notify_all()

    def _lead(self, lines: _Lines[T, R], key: Hashable, own: Pending[T, R]) -> None:
        group: Sequence[Pending[T, R]] = ()
        try:
            group = self._gather(lines, key)
            self._do(group)
        except BaseException as error:
            for each in group:
                if each is not own and not each.done:
                    each.error = for_another_thread(error)
            raise
        finally:
            _leave(lines, key, own)
            for each in group:
                if each is not own:
                    each.wake()

    def _gather(self, lines: _Lines[T, R], key: Hashable) -> Sequence[Pending[T, R]]:
        with lines.changed:
            waiting = lines.waiting[key]
            if self._linger:
                lines.changed.wait_for(lambda: len(waiting) >= self._enough, self._linger)
            count = 1 if len(waiting) == 1 else self._together([each.item for each in waiting])
            group = waiting[:count]
            del waiting[:count]
            return group


def _leave(lines: _Lines[T, R], key: Hashable, own: Pending[T, R]) -> None:
    """Let the next one lead, if this one did; it may have been interrupted before its own part was taken."""
    with lines.changed:
        waiting = lines.waiting.get(key, [])
        if own in waiting:
            waiting.remove(own)
        if not own.leads:
            return
        own.leads = False
        if waiting:
            waiting[0].leads = True
            waiting[0].wake()
        else:
            del lines.waiting[key]


def for_another_thread(error: BaseException, unsent: Sequence[OutgoingMessage] = ()) -> BaseException:
    """What a thread is told of an error that another one met: an error of its own, as raising changes an error."""
    if not isinstance(error, Exception):  # it is the other thread that is to end
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
    """Does what the inner store does; acks, releases and extensions of a shard that come at the same time are joined.

    Each caller's answer is of its own messages only. What the store refuses for all of them it is asked again for each
    alone, so that nobody meets another one's error. ``check`` is called before a request that waited for another one.
    """

    def __init__(self, inner: Store, check: Callable[[], None] = lambda: None) -> None:
        super().__init__(inner)
        self._check = check
        self._joining: Joining[Settle, Fenced] = Joining(self._settle, _disjoint)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish what is still held, together with what other threads finish of the shard at the moment."""
        return self._joining.submit(_kind(request), request)

    def extend(self, request: Extend) -> Fenced:
        """Hide what is still held until now + lease, together with what other threads extend as this one does."""
        return self._joining.submit(_kind(request), request)

    def release(self, request: Release) -> Fenced:
        """Give back what is still held, together with what other threads release as this one does."""
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
    """What requests have in common that may be joined: everything but the messages."""
    return msgspec.structs.replace(request, spans=())


def _disjoint(requests: Sequence[Settle]) -> int:
    """How many of the first requests name no message twice: who names one again is to be told what became of it."""
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
    """What an answer says of some of the messages that it is of."""
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
