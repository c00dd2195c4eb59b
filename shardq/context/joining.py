"""Joining the requests that several threads make at the same time, as a group commit does.

If no request is under way, a thread makes its own at once. Threads that come while one is under way wait. When it has
ended, one of them leads: it makes one request for all that wait. Each caller returns when its own part is done, with
its own result or error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from shardq.errors import OutcomeUnknown, ShardqError
from shardq.outgoing_message import OutgoingMessage
from shardq.storage.per_process import PerProcess
from shardq.waits import Turn

__all__ = ["Joining", "Pending", "for_another_thread"]

T = TypeVar("T")
R = TypeVar("R")


class Pending(Generic[T, R]):
    """What one caller asks for, and its result or error."""

    turn: Turn  # of one that waits: ends when it was done, or when the caller is to lead

    def __init__(self, item: T) -> None:
        self.item = item
        self.result: R | None = None
        self.error: BaseException | None = None
        self.group: Sequence[Pending[T, R]] = ()  # those that this one leads, itself included
        self.begun = False  # the request for them

    @property
    def done(self) -> bool:
        """True when there is a result or an error."""
        return self.result is not None or self.error is not None


class _Callers(Generic[T, R]):
    """Callers of one key that wait, the next leader first."""

    def __init__(self, leader: Pending[T, R], waiting: list[Pending[T, R]]) -> None:
        self.leader, self.waiting = leader, waiting


class _Waiters(Generic[T, R]):
    """The callers of one process that wait, by what may be joined. A key is there while one of them leads.

    A thread may be interrupted anywhere, once: Ctrl-C raises between two steps. So the lock is a plain one, which is
    taken and given back in one step, unlike a Condition, and what a caller leaves to do can be done again.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_key: dict[Hashable, _Callers[T, R]] = {}


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
        self._here = threading.local()

    def waiting(self) -> int:
        """Return how many callers of this process wait for one that leads."""
        waiters = self._waiters.get()
        with waiters.lock:
            return sum(len(callers.waiting) for callers in waiters.by_key.values())

    def submit(self, key: Hashable, item: T) -> R:
        """Do it, together with what others submit under the same key; returns its result or raises its error.

        A thread that calls this in the middle of another call of its own, as a signal handler may, waits for nobody: it
        would wait for itself.
        """
        own: Pending[T, R] = Pending(item)
        if getattr(self._here, "busy", False):
            self._do([own])
            return _outcome(own)
        try:
            self._here.busy = True
            self._join(key, own)
        finally:
            self._here.busy = False
        return _outcome(own)

    def _join(self, key: Hashable, own: Pending[T, R]) -> None:
        waiters = self._waiters.get()
        try:
            if self._enter(waiters, key, own) is not own:
                own.turn.wait()
            if not own.done:
                self._lead(waiters, key, own)
        except BaseException as error:
            _leave(waiters, key, own, error)
            raise

    def _enter(self, waiters: _Waiters[T, R], key: Hashable, own: Pending[T, R]) -> Pending[T, R]:
        """Return who leads."""
        with waiters.lock:
            callers = waiters.by_key.get(key)
            if callers is None and not self._linger:  # nobody else can have come
                own.group = [own]
                waiters.by_key[key] = _Callers(own, [])
                return own
            own.turn = Turn()
            if callers is None:
                waiters.by_key[key] = _Callers(own, [own])
                return own
            callers.waiting.append(own)
            if self._linger and len(callers.waiting) >= self._enough:
                callers.leader.turn.end()
            return callers.leader

    def _lead(self, waiters: _Waiters[T, R], key: Hashable, own: Pending[T, R]) -> None:
        if self._linger:
            self._linger_for_others(waiters, key, own)
        if not own.group:
            self._gather(waiters, key, own)
        own.begun = True
        self._do(own.group)
        _leave(waiters, key, own)

    def _linger_for_others(self, waiters: _Waiters[T, R], key: Hashable, own: Pending[T, R]) -> None:
        with waiters.lock:
            callers = waiters.by_key[key]
            callers.leader = own
            alone = len(callers.waiting) < self._enough
        if alone:
            own.turn.wait(self._linger)

    def _gather(self, waiters: _Waiters[T, R], key: Hashable, own: Pending[T, R]) -> None:
        with waiters.lock:
            callers = waiters.by_key[key]
            callers.leader, waiting = own, callers.waiting
            count = 1 if len(waiting) == 1 else self._together([each.item for each in waiting])
            own.group = waiting[:count]
            del waiting[:count]


def _outcome(own: Pending[T, R]) -> R:
    if own.error is not None:
        raise own.error
    assert own.result is not None
    return own.result


def _leave(
    waiters: _Waiters[T, R], key: Hashable, own: Pending[T, R], error: BaseException | None = None
) -> None:
    """Tell those who were led, and let the next one lead, if this one did. May be repeated after an interrupt."""
    with waiters.lock:
        callers = waiters.by_key.get(key)
        if callers is not None and own.group and not own.begun:
            callers.waiting[:0], own.group = own.group, ()
        if callers is not None and own in callers.waiting:
            callers.waiting.remove(own)
        if callers is not None and callers.leader is own:
            if callers.waiting:
                callers.waiting[0].turn.end()
                callers.leader = callers.waiting[0]
            else:
                del waiters.by_key[key]
        for each in own.group:
            if each is not own:
                if error is not None and not each.done:
                    each.error = for_another_thread(error)
                each.turn.end()
        own.group = ()


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
