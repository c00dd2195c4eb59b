"""Signals of the operating system, to a pool and to its processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

from shardq.storage.per_process import generation

__all__ = ["call_on", "end_group", "ignore_interrupts", "own_group", "stop_signals", "without_interrupts"]

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def _may_handle_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


def call_on(number: int, stop: Callable[[], None]) -> Any:
    """Call ``stop`` for each signal of this number; returns how it was handled before.

    A child that is forked meanwhile, as by `multiprocessing` in a handler, handles it as before: it can be ended.
    """
    before, here = signal.getsignal(number) or signal.SIG_DFL, generation()

    def handle(number: int, _frame: FrameType | None) -> None:
        if generation() == here:
            stop()
            return
        signal.signal(number, before)
        os.kill(os.getpid(), number)

    signal.signal(number, handle)
    return before


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` for each SIGTERM and SIGINT while the block runs.

    In a thread other than the main one, signals are handled as before.
    """
    if not _may_handle_signals():
        yield
        return
    before = {number: call_on(number, stop) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block SIGINT for the processes that the block starts, until they call :func:`ignore_interrupts`.

    A Ctrl-C during the block reaches this process when the block ends: none is lost.
    """
    resource_tracker.ensure_running()  # starts with the first process otherwise, and unblocks SIGINT then
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C, which the parent gets too. For processes started in :func:`without_interrupts`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))


def own_group() -> None:
    """Put this process, and what it starts from now on, into a process group of their own."""
    os.setpgid(0, 0)


def end_group(pid: int | None) -> None:
    """Kill the process group of a process. Does nothing if the process has ended or has no group of its own."""
    try:
        if pid is not None:
            os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS raises the second when all of the group have ended
        return
