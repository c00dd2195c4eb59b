"""Signals of the operating system, for as long as a pool runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["stop_signals", "without_interrupts"]

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def _may_handle_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call ``stop`` meanwhile.

    In another thread than the main one they stay as they are.
    """
    if not _may_handle_signals():
        yield
        return
    before = {number: signal.signal(number, lambda _number, _frame: stop()) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Processes that are started meanwhile ignore SIGINT from their first moment on."""
    if not _may_handle_signals():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
