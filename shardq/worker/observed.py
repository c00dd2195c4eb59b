"""Hooks around the calls of handlers, and observers, which are notified of the calls and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from time import perf_counter
from typing import Any, Protocol, TypeVar

from shardq.client.batch import Batch
from shardq.core.hooks import Hooks, Observer, handler_call
from shardq.core.message import Message

__all__ = ["noted", "observed_handler", "timed"]

TOGETHER_SECONDS = 0.2  # for which calls are kept, so that a quick handler costs one notification for many

_Handler = Callable[[Any], object]
H = TypeVar("H", bound=_Handler)


def observed_handler(hooks: Hooks | None, handler: H) -> H:
    """Return the handler of messages, or of batches, with hooks around it; the same one where there are none."""
    if hooks is None:
        return handler

    @wraps(handler)
    def call_handler(given: Message | Batch) -> object:
        messages = list(given) if isinstance(given, Batch) else [given]
        call = handler_call(messages, batch=isinstance(given, Batch))
        with hooks.around(call):
            call.result = handler(given)
        return call.result

    return call_handler  # type: ignore[return-value]


class _Work(Protocol):
    """The outcomes of the messages of a batch so far."""

    queue: str
    finished: list[Any]
    discarded: int
    endings: list[Any]
    snoozed: int


def timed(handler: _Handler, work: _Work, observer: Observer | None) -> AbstractContextManager[_Handler]:
    """Return the handler for a block, in which the observer is notified of its calls and their outcomes."""
    return nullcontext(handler) if observer is None else _timed(handler, work, observer)


@contextmanager
def _timed(handler: _Handler, work: _Work, observer: Observer) -> Iterator[_Handler]:
    before, seconds = _outcomes(work), list[float]()
    due, took = perf_counter() + TOGETHER_SECONDS, seconds.append

    def notify() -> None:
        nonlocal before
        before = _notify(work, observer, before, seconds.copy())
        seconds.clear()

    def call(argument: Any) -> object:
        nonlocal due
        began = perf_counter()
        if began >= due:
            due = began + TOGETHER_SECONDS
            notify()
        try:
            return handler(argument)
        finally:
            took(perf_counter() - began)

    try:
        yield call
    finally:
        notify()


@contextmanager
def noted(work: _Work, observer: Observer | None, seconds: float) -> Iterator[None]:
    """Notify the observer of a call of this duration, whose outcome the block notes."""
    before = None if observer is None else _outcomes(work)
    try:
        yield
    finally:
        if observer is not None and before is not None:
            _notify(work, observer, before, [seconds])


def _notify(
    work: _Work, observer: Observer, before: Mapping[str, int], seconds: list[float]
) -> dict[str, int]:
    """Notify the observer of calls, and of the outcomes since the earlier ones; returns the present ones."""
    now = _outcomes(work)
    observer.handled(work.queue, {each: now[each] - before[each] for each in now}, seconds)
    return now


def _outcomes(work: _Work) -> dict[str, int]:
    """Return how many messages the handler has worked, failed, snoozed and discarded so far."""
    return {
        "worked": len(work.finished) - work.discarded,
        "failed": len(work.endings) - work.snoozed,
        "snoozed": work.snoozed,
        "discarded": work.discarded,
    }
