"""Waiting for a lock that another process holds."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay

from shardq.storage.sqlite.faults import is_busy

__all__ = ["Patience"]

T = TypeVar("T")

_LONGEST = 0.004
_SHORTEST = 0.0002


class Patience:
    """Repeats an attempt for up to ``seconds`` while the database is locked by others.

    Pauses shrink with the time waited. Who has just come leaves the lock to those who wait already, which makes
    turns fair and lets the holder do several transactions in a row; SQLite's own waiting does the opposite.
    """

    def __init__(self, seconds: float) -> None:
        self._retrying = Retrying(
            retry=retry_if_exception(_locked),
            wait=_pause,
            stop=stop_after_delay(seconds),
            reraise=True,
        )

    def __call__(self, attempt: Callable[[], T]) -> T:
        """Return what the first attempt on a free database gives, or raise the last one's error."""
        try:
            return attempt()
        except sqlite3.Error as error:
            if not is_busy(error):
                raise
        return self._retrying.copy()(attempt)


def _pause(state: RetryCallState) -> float:
    return random.uniform(0.5, 1.5) * max(_SHORTEST, _LONGEST / state.attempt_number)


def _locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) and is_busy(error)
