"""What an observer is notified of while a handler works on a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Protocol

from shardq.hooks import Observer

__all__ = ["timed_calls"]

TOGETHER_SECONDS = 0.2  # for which calls are kept, so that a quick handler costs one notification for many


class _Work(Protocol):
    """What becomes of the messages of a batch."""

    @property
    def queue(self) -> str: ...
    @property
    def outcomes(self) -> Mapping[str, int]: ...


@contextmanager
def timed_calls(
    handler: Callable[[Any], object], work: _Work, observer: Observer
) -> Iterator[Callable[[Any], object]]:
    """Notify the observer of the calls of a handler in the block, and of what becomes of the messages."""
    before, seconds = work.outcomes, list[float]()
    due = perf_counter() + TOGETHER_SECONDS

    def notify() -> None:
        nonlocal before, seconds
        now = work.outcomes
        observer.handled(work.queue, {each: now[each] - before[each] for each in now}, seconds)
        before, seconds = now, []

    def timed(argument: Any) -> object:
        nonlocal due
        began = perf_counter()
        if began >= due:
            due = began + TOGETHER_SECONDS
            notify()
        try:
            return handler(argument)
        finally:
            seconds.append(perf_counter() - began)

    try:
        yield timed
    finally:
        notify()
