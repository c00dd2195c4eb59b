"""Signals of the operating system, for as long as a pool runs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

__all__ = ["end_group", "ignore_interrupts", "own_group", "stop_signals", "without_interrupts"]

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
    """Processes that are started meanwhile get no SIGINT from their first moment on, until :func:`ignore_interrupts`.

    This one gets what comes meanwhile, afterwards at the latest: no Ctrl-C is lost.
    """
    resource_tracker.ensure_running()  # starts with the first process otherwise, and unblocks SIGINT then
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent. For the main thread of a process that was started without interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))


def own_group() -> None:
    """Make this process and what it starts from now on a group of their own, which :func:`end_group` can end."""
    os.setpgid(0, 0)


def end_group(pid: int | None) -> None:
    """End the group of a process at once; one that has no group of its own, or has ended, is left alone."""
    try:
        if pid is not None:
            os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # on macOS the second, where all of it have ended
        return
