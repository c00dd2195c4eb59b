"""Signals of the operating system, to a pool and to its processes."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

from shardq.storage.per_process import forks

__all__ = [
    "STACKS",
    "call_on",
    "call_unless_handled",
    "end_group",
    "guarded_group",
    "ignore_interrupts",
    "own_group",
    "print_stacks",
    "stop_signals",
    "without_interrupts",
]

_STOPPING = (signal.SIGTERM, signal.SIGINT)
STACKS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that have a process print what each of its threads is at."""


def _may_handle_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


def call_on(number: int, stop: Callable[[], None]) -> Any:
    """Call ``stop`` for each signal of this number; returns how it was handled before.

    A child that is forked meanwhile, as by `multiprocessing` in a handler, handles it as before: it can be ended.
    """
    before, here = signal.getsignal(number) or signal.SIG_DFL, forks.count

    def handle(number: int, _frame: FrameType | None) -> None:
        if forks.count == here:
            stop()
            return
        signal.signal(number, before)
        os.kill(os.getpid(), number)

    signal.signal(number, handle)
    return before


@contextmanager
def call_unless_handled(calls: Mapping[int, Callable[[], None]]) -> Iterator[None]:
    """Call a function for each signal of a number while the block runs, where the program does not handle that itself.

    A signal that is ignored, as SIGHUP by ``nohup``, stays so.
    """
    free = _may_handle_signals()
    ours = [number for number in calls if free and signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        call_on(number, calls[number])
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def print_stacks() -> None:
    """Have this process print the stacks of its threads on stderr for each of the signals `STACKS`."""
    if sys.stderr is not None:
        for number in STACKS:
            faulthandler.register(number)


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
    """Put this process, and those that it starts from now on, into a separate process group."""
    os.setpgid(0, 0)


@contextmanager
def guarded_group() -> Iterator[None]:
    """Have the process group of this process killed when the process dies within the block, from any cause.

    A process waits for that: its pipe is closed then. At the end of the block it is notified that all is well.
    """
    script = 'trap "" HUP INT QUIT TERM; read -r word || kill -s KILL -- "-$1"'
    here = forks.count
    guard = subprocess.Popen(
        ["/bin/sh", "-c", script, "shardq-guard", str(os.getpgrp())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    assert guard.stdin is not None
    try:
        yield
    finally:
        if forks.count == here:  # else of a child that a handler has forked
            with suppress(OSError):  # somebody has killed it
                guard.communicate(b"done\n")


def end_group(pid: int | None) -> None:
    """Kill the process group of a process. Does nothing if the process has ended or has no separate group."""
    try:
        if pid is not None:
            os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS raises the second when all of the group have ended
        return
