"""What a worker passes before it calls its handler: it must not be stopping, and may need a permit of a semaphore."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

from shardq.errors import PermitLost, PermitTimeout
from shardq.semaphore import Permit, Semaphore

__all__ = ["Gate", "open_gate", "permit_gate"]

_log = logging.getLogger(__name__)

Gate: TypeAlias = Callable[[], AbstractContextManager[bool]]
"""Entered for each call of the handler. False: the worker is stopping, and the handler is not to be called."""

STOP_SECONDS = 0.5  # a stop is noticed within this time


def open_gate(stopping: Callable[[], bool]) -> Gate:
    """A gate that needs no permit."""
    return lambda: nullcontext(not stopping())


def permit_gate(semaphore: Semaphore, stopping: Callable[[], bool]) -> Gate:
    """A gate that holds a permit while the handler runs. It waits for one, and raises the errors of the store."""

    @contextmanager
    def enter() -> Iterator[bool]:
        permit = _acquired(semaphore, stopping)
        try:
            yield permit is not None
        finally:
            if permit is not None:
                _release(permit)

    return enter


def _acquired(semaphore: Semaphore, stopping: Callable[[], bool]) -> Permit | None:
    while not stopping():
        try:
            return semaphore.acquire(timeout=STOP_SECONDS)
        except PermitTimeout:
            continue
    return None


def _release(permit: Permit) -> None:
    try:
        permit.release()
    except PermitLost as error:
        _log.warning("while the handler ran, %s", error)
