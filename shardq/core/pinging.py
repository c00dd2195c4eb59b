"""Checks whether a store answers in time, and whether its clock is near that of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.requests import Finding
from shardq.storage.store import Store

__all__ = ["clock_finding", "ping"]

CLOCK_TOLERANCE_SECONDS = 1.0


def ping(store: Store, timeout: float) -> None:
    """Return when the store has answered. Raises StoreUnavailable when it has not within ``timeout`` seconds."""
    answer: Future[None] = Future()
    threading.Thread(target=_answer, args=(answer, store.ping), name="shardq-ping", daemon=True).start()
    try:
        answer.result(timeout)
    except OutcomeUnknown as error:  # nothing was to be changed
        raise StoreUnavailable(str(error)) from error
    except TimeoutError:
        raise StoreUnavailable(
            f"the store did not answer within {timeout:g} seconds: see that its server runs and can be reached"
        ) from None


def _answer(answer: Future[None], ask: Callable[[], None]) -> None:
    try:
        ask()
    except BaseException as error:
        answer.set_exception(error)
    else:
        answer.set_result(None)


def clock_finding(offset: float) -> Finding:
    """Return whether the store's clock, which is ``offset`` seconds ahead of this machine, is near enough."""
    fine = abs(offset) <= CLOCK_TOLERANCE_SECONDS
    return Finding(
        "clock", fine, f"{offset:+.3f} s", "" if fine else "let NTP set the clocks of all machines"
    )
