"""What every process has for itself: connections, locks, and what threads of this process wait for.

A fork copies a lock as it is at that moment, maybe held by a thread that the child does not have. So each process makes
the locks of a client for itself.

Which process this is, is asked a dozen times for each message. To ask the system took a tenth of what a single message
takes on SQLite, so forks are counted instead. Nor does a count come again, as the id of a process that ended may.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import count
from typing import Generic, TypeVar

import msgspec

__all__ = ["OwnLock", "PerProcess", "generation", "watch_forks"]

T = TypeVar("T")


class _Watch(msgspec.Struct, frozen=True):
    """What is called around a fork, while the object of these methods lives."""

    before: weakref.WeakMethod[Callable[[], None]]
    after_in_parent: weakref.WeakMethod[Callable[[], None]]
    after_in_child: weakref.WeakMethod[Callable[[], None]]


class _Forks:
    """Those that lie between the first process and this one, and who watches the next ones.

    Python forgets nothing that it was told to call around forks, and each transaction of the application watches them.
    So it is told of this object alone.
    """

    def __init__(self) -> None:
        self.count = 0
        self._numbers = count()
        self._watches: dict[int, _Watch] = {}
        self._paused = threading.local()
        os.register_at_fork(
            before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
        )

    def watch(
        self,
        before: Callable[[], None],
        after_in_parent: Callable[[], None],
        after_in_child: Callable[[], None],
    ) -> None:
        number = next(self._numbers)
        self._watches[number] = _Watch(
            weakref.WeakMethod(before, lambda _: self._watches.pop(number, None)),
            weakref.WeakMethod(after_in_parent),
            weakref.WeakMethod(after_in_child),
        )

    def _before(self) -> None:
        self._paused.watches = watches = list(self._watches.values())
        _call(each.before for each in reversed(watches))

    def _after_in_parent(self) -> None:
        _call(each.after_in_parent for each in self._paused.watches)

    def _after_in_child(self) -> None:
        self.count += 1
        _call(each.after_in_child for each in list(self._watches.values()))


def _call(methods: Iterable[weakref.WeakMethod[Callable[[], None]]]) -> None:
    """Call those whose object lives, one after the other, also where some fail."""
    with ExitStack() as stack:
        for method in reversed(list(methods)):
            if (call := method()) is not None:
                stack.callback(call)


_forks = _Forks()


def generation() -> int:
    """Return a number that this process has, and none of those that it was forked from."""
    return _forks.count


class _Own(Generic[T]):
    def __init__(self) -> None:
        self.making = threading.Lock()
        self.value: T | None = None


class PerProcess(Generic[T]):
    """One value for each process: made when it is first asked for, again after a fork, and again once it was taken.

    A child keeps what its parents had made without touching it: to collect it would reach the parent's sockets.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._by_generation: dict[int, _Own[T]] = {}

    def get(self) -> T:
        """Return the value of this process."""
        own = self._by_generation.get(_forks.count) or self._own()
        if own.value is not None:
            return own.value
        with own.making:
            if own.value is None:
                own.value = self._make()
            return own.value

    def known(self) -> T | None:
        """Return the value of this process if there is one by now."""
        return self._own().value

    def take(self) -> T | None:
        """Return the value of this process, if there is one, and keep it no longer."""
        own = self._own()
        value, own.value = own.value, None
        return value

    def _own(self) -> _Own[T]:
        return self._by_generation.get(_forks.count) or self._by_generation.setdefault(_forks.count, _Own())


class OwnLock(PerProcess[threading.Lock]):
    """A lock of which a forked child has one of its own, whatever its parent's threads held.

    ``with lock.get():`` takes it in one step, so that Ctrl-C cannot come in between and leave it taken. What it guards
    has to be whole between any two steps, as numbers and dicts are.
    """

    def __init__(self) -> None:
        super().__init__(threading.Lock)


def watch_forks(
    *, after_in_child: Callable[[], None], before: Callable[[], None], after_in_parent: Callable[[], None]
) -> None:
    """Call the bound methods around every fork, for as long as their object lives."""
    _forks.watch(before, after_in_parent, after_in_child)
