"""What an observer is notified of while a handler works on a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

from shardq.hooks import Observer
from shardq.outcome import Snooze

if TYPE_CHECKING:
    from shardq.worker.attempt import Attempt, Handler

__all__ = ["timed"]

TOGETHER_SECONDS = 0.2  # for which calls are kept, so that a quick handler costs one notification for many


def timed(handler: Handler, attempt: Attempt, observer: Observer | None) -> AbstractContextManager[Handler]:
    """Return the handler for a block, in which the observer is notified of its calls and their outcomes."""
    return nullcontext(handler) if observer is None else _timed(handler, attempt, observer)


@contextmanager
def _timed(handler: Handler, attempt: Attempt, observer: Observer) -> Iterator[Callable[[Any], object]]:
    before, seconds = _outcomes(attempt), list[float]()
    due = perf_counter() + TOGETHER_SECONDS

    def notify() -> None:
        nonlocal before, seconds
        now = _outcomes(attempt)
        observer.handled(attempt.queue, {each: now[each] - before[each] for each in now}, seconds)
        before, seconds = now, []

    def call(argument: Any) -> object:
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
        yield call
    finally:
        notify()


def _outcomes(attempt: Attempt) -> dict[str, int]:
    """Return how many messages the handler has worked, failed, snoozed and discarded so far."""
    snoozed = sum(isinstance(each.outcome, Snooze) for each in attempt.endings)
    return {
        "worked": len(attempt.finished) - attempt.discarded,
        "failed": len(attempt.endings) - snoozed,
        "snoozed": snoozed,
        "discarded": attempt.discarded,
    }
