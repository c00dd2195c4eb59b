"""Joining the requests that several threads make at the same time, as a group commit does.

If no request is under way, a thread makes its own at once. Threads that come while one is under way wait. When it has
ended, one of them leads: it makes one request for all that wait. Each caller returns when its own part is done, with
its own result or error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import msgspec

from shardq.base.outgoing_message import OutgoingMessage
from shardq.base.waits import ThreadWait
from shardq.errors import OutcomeUnknown, ShardqError
from shardq.storage.per_process import forks

__all__ = ["GroupCommit", "Pending", "for_another_thread"]

T = TypeVar("T")
R = TypeVar("R")


class Pending(Generic[T, R]):
    """The request of one caller that waits for others, and its result or error."""

    def __init__(self, item: T) -> None:
        self.item = item
        self.result: R | None = None
        self.error: BaseException | None = None
        self.waiter = ThreadWait()  # ends when it was done, or when the caller is to lead
        self.group: Sequence[Pending[T, R]] = ()  # those that this one leads, itself included
        self.begun = False  # the request for them

    @property
    def done(self) -> bool:
        """True when there is a result or an error."""
        return self.result is not None or self.error is not None


class _Callers(msgspec.Struct, Generic[T, R], eq=False):
    """The callers of one key that wait, the next leader first.

    ``leader`` is None while the first caller, which does not wait, makes its request.
    """

    waiting: list[Pending[T, R]]
    leader: Pending[T, R] | None = None

    def promote_next(self) -> None:
        """Let the next one lead. May be repeated after an interrupt."""
        self.waiting[0].waiter.end()
        self.leader = self.waiting[0]


class _ThreadState(threading.local):
    busy = False  # this thread is in the middle of a call


class GroupCommit(Generic[T, R]):
    """Makes one request for the callers that come at the same time.

    ``alone`` makes the request of a caller that has not waited. ``several`` makes it for those that have, and gives
    each its result or error; an error that it raises is for all. ``together`` says how many of the items that wait may
    go together, from the first on. With ``linger`` a leader waits up to that number of seconds for others, or until
    there are ``enough``.

    A thread may be interrupted anywhere, once: Ctrl-C raises between two steps. So the lock is a plain one, which is
    taken and released in one step, unlike a Condition. The work that an interrupted caller leaves can be done again. A
    forked child has none of its parent's callers.
    """

    def __init__(
        self,
        alone: Callable[[T], R],
        several: Callable[[Sequence[Pending[T, R]]], None],
        together: Callable[[Sequence[T]], int],
        *,
        linger: float = 0.0,
        enough: int = 1,
    ) -> None:
        self._alone, self._several, self._together = alone, several, together
        self._linger, self._enough = linger, enough
        self._here = _ThreadState()
        self.renew()
        forks.renewed.add(self)

    def renew(self) -> None:
        """Have no callers in a forked child."""
        self._lock = threading.Lock()
        self._by_key: dict[Hashable, _Callers[T, R]] = {}  # a key is there while one of its callers leads

    def waiting(self) -> int:
        """Return how many callers of this process wait for one that leads."""
        with self._lock:
            return sum(len(callers.waiting) for callers in self._by_key.values())

    def run(self, items: Sequence[T]) -> Sequence[Pending[T, R]]:
        """Do several of one caller together, and return each with its own result or error.

        It does not wait for others.
        """
        group = left = [Pending[T, R](item) for item in items]
        while left:
            count = 1 if len(left) == 1 else self._together([each.item for each in left])
            some, left = left[:count], left[count:]
            try:
                self._several(some)
            except Exception as error:
                for each in some:
                    if not each.done:
                        each.error = for_another_thread(error)
        return group

    def submit(self, key: Hashable, item: T) -> R:
        """Do the item, together with those that others submit under the same key.

        Returns its result or raises its error. A thread that calls this in the middle of another call, as a signal
        handler may, does not wait for others: it would wait for itself.
        """
        here = self._here
        if here.busy:
            return self._alone(item)
        first: _Callers[T, R] = _Callers([])
        own: Pending[T, R] | None = None
        try:
            here.busy = True
            with self._lock:
                callers = self._by_key.get(key)
                if callers is None and not self._linger:  # nobody else can have come
                    self._by_key[key] = first
                else:
                    own = Pending(item)
                    self._enter(key, callers, own)
            if own is None:
                result = self._alone(item)
                self._leave(key, first)
            else:
                result = self._wait_and_join(key, own)
        except BaseException as error:
            try:
                self._leave_early(key, first, own, error)
            except BaseException:  # interrupted on the way out: once more
                self._leave_early(key, first, own, error)
                raise
            raise
        finally:
            here.busy = False
        return result

    def _leave_early(
        self, key: Hashable, first: _Callers[T, R], own: Pending[T, R] | None, error: BaseException
    ) -> None:
        if own is None:
            self._leave(key, first)
        else:
            self._end_group(key, own, error)

    def _leave(self, key: Hashable, first: _Callers[T, R]) -> None:
        """Let the next one lead, if the first one has. May be repeated after an interrupt."""
        with self._lock:
            if self._by_key.get(key) is first and first.leader is None:
                if first.waiting:
                    first.promote_next()
                else:
                    del self._by_key[key]

    def _enter(self, key: Hashable, callers: _Callers[T, R] | None, own: Pending[T, R]) -> None:
        if callers is None:
            own.waiter.end()  # it leads
            self._by_key[key] = _Callers([own], own)
            return
        callers.waiting.append(own)
        if callers.leader is not None and self._linger and len(callers.waiting) >= self._enough:
            callers.leader.waiter.end()

    def _wait_and_join(self, key: Hashable, own: Pending[T, R]) -> R:
        """Wait for others, or with them."""
        own.waiter.wait()
        if not own.done:
            self._lead(key, own)
        if own.error is not None:
            raise own.error
        assert own.result is not None
        return own.result

    def _lead(self, key: Hashable, own: Pending[T, R]) -> None:
        if self._linger:
            self._linger_for_others(key, own)
        self._gather(key, own)
        own.begun = True
        self._several(own.group)
        self._end_group(key, own)

    def _linger_for_others(self, key: Hashable, own: Pending[T, R]) -> None:
        with self._lock:
            callers = self._by_key[key]
            callers.leader = own
            is_alone = len(callers.waiting) < self._enough
        if is_alone:
            own.waiter.wait(self._linger)

    def _gather(self, key: Hashable, own: Pending[T, R]) -> None:
        with self._lock:
            callers = self._by_key[key]
            callers.leader, waiting = own, callers.waiting
            count = 1 if len(waiting) == 1 else self._together([each.item for each in waiting])
            own.group = waiting[:count]
            del waiting[:count]

    def _end_group(self, key: Hashable, own: Pending[T, R], error: BaseException | None = None) -> None:
        """Notify the led callers, and let the next one lead, if this one did. May be repeated after an interrupt."""
        with self._lock:
            callers = self._by_key.get(key)
            if callers is not None and own.group and not own.begun:
                callers.waiting[:0], own.group = own.group, ()
            if callers is not None and own in callers.waiting:
                callers.waiting.remove(own)
            if callers is not None and callers.leader is own:
                if callers.waiting:
                    callers.promote_next()
                else:
                    del self._by_key[key]
            for each in own.group:
                if each is not own:
                    if error is not None and not each.done:
                        each.error = for_another_thread(error)
                    each.waiter.end()
            own.group = ()


def for_another_thread(error: BaseException, unsent: Sequence[OutgoingMessage] = ()) -> BaseException:
    """Return the error to raise for one that another thread met: a copy, as raising an error changes it."""
    if not isinstance(error, Exception):  # only the other thread is to end
        own: BaseException = OutcomeUnknown("the thread that did this was interrupted", unsent=unsent)
    elif isinstance(error, ShardqError):
        own = type(error).__new__(type(error), *error.args)
        own.__dict__.update(error.__dict__)
        if isinstance(own, OutcomeUnknown):
            own.unsent = tuple(unsent)
    else:
        return error
    own.__cause__ = error
    return own
