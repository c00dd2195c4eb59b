"""Objects that every process has for itself: connections, locks, and the waits of this process's threads.

A fork copies a lock as it is at that moment, maybe held by a thread that the child does not have. So each process makes
the locks of a client for itself.

A child renews its objects right after the fork, so that no use has to ask in which process it is. Where a use has to
ask, forks are counted: a count never comes again, as the id of a process that ended may.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Generic, Protocol, TypeVar

__all__ = ["OwnLock", "PerProcess", "forks", "watch_forks"]

T = TypeVar("T")


class WatchesForks(Protocol):
    """An object that is notified of forks."""

    def before_fork(self) -> None:
        """Prepare for a fork."""

    def after_fork_in_parent(self) -> None:
        """Continue after a fork, in the process that was prepared."""

    def after_fork_in_child(self) -> None:
        """Continue after a fork, in the child."""


class _Renewed(Protocol):
    def renew(self) -> None:
        """Begin anew: this is a forked child, in which only this thread continues."""


class _Forks:
    """Counts the forks between the first process and this one, and notifies watchers of the next ones.

    The ``count`` is a number that this process has, and none of those that it was forked from.

    Python keeps all functions that it calls around forks, and each transaction of the application has objects that
    want notice. So Python knows of this object alone.
    """

    def __init__(self) -> None:
        self.count = 0
        self._numbers = count()
        self._watchers: dict[int, weakref.ref[WatchesForks]] = {}
        self.renewed: weakref.WeakSet[_Renewed] = weakref.WeakSet()
        self._own = threading.local()
        os.register_at_fork(
            before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
        )

    def add(self, watcher: WatchesForks) -> None:
        number, watchers = next(self._numbers), self._watchers
        watchers[number] = weakref.ref(watcher, lambda _: watchers.pop(number, None))

    def _living(self) -> list[WatchesForks]:
        return [each for known in list(self._watchers.values()) if (each := known()) is not None]

    def _before(self) -> None:
        self._own.notified = notified = self._living()
        _call([each.before_fork for each in reversed(notified)])

    def _after_in_parent(self) -> None:
        notified, self._own.notified = self._own.notified, []
        _call([each.after_fork_in_parent for each in notified])

    def _after_in_child(self) -> None:
        self.count += 1
        self._own.notified = []
        renewals = [each.renew for each in self.renewed]
        _call([*renewals, *(each.after_fork_in_child for each in self._living())])


def _call(calls: Sequence[Callable[[], None]]) -> None:
    """Call one after the other, also where some fail."""
    with ExitStack() as stack:
        for call in reversed(calls):
            stack.callback(call)


forks = _Forks()


class PerProcess(Generic[T]):
    """One value for each process: made when it is first asked for, again after a fork, and again once it was taken.

    A child keeps what its parents had made without touching it: to collect it would reach the parent's sockets.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._inherited: list[T] = []
        self._making = threading.Lock()
        self.known: T | None = None
        """The value of this process if there is one by now."""
        forks.renewed.add(self)

    def get(self) -> T:
        """Return the value of this process."""
        known = self.known
        if known is not None:
            return known
        with self._making:
            if self.known is None:
                self.known = self._make()
            return self.known

    def take(self) -> T | None:
        """Return the value of this process, if there is one, and keep it no longer."""
        value, self.known = self.known, None
        return value

    def renew(self) -> None:
        """Have no value in a forked child."""
        if self.known is not None:
            self._inherited.append(self.known)
        self._making, self.known = threading.Lock(), None


class OwnLock:
    """A lock of which a forked child has another one, whatever its parent's threads held.

    ``with lock.plain:`` takes it in one step, so that Ctrl-C cannot come in between and leave it taken. Its data has
    to be whole between any two steps, as numbers and dicts are: a signal's handler may take the lock once more.
    """

    def __init__(self) -> None:
        self.plain = threading.RLock()
        forks.renewed.add(self)

    def renew(self) -> None:
        """Be free in a forked child."""
        self.plain = threading.RLock()


def watch_forks(watcher: WatchesForks) -> None:
    """Notify an object of every fork, for as long as it lives."""
    forks.add(watcher)
