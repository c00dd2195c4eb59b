"""The processes of Spark on this computer, as the kernel shows them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

__all__ = [
    "children_of",
    "command_of",
    "descendants_of",
    "killed_when",
    "peak_of",
    "processor_of",
    "resident",
]


def children_of(parent: int) -> list[int]:
    """The processes that a process has started and that still run."""
    with suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(parent).children()]
    return []


def descendants_of(parent: int, *, without: str | None = None) -> list[int]:
    """The processes below a process, but for those of a command and what is below them."""
    found = []
    for child in children_of(parent):
        if without is None or without not in command_of(child):
            found += [child, *descendants_of(child, without=without)]
    return found


def command_of(process: int) -> str:
    """Its command line; empty when it has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(psutil.Process(process).cmdline())
    return ""


def processor_of(process: int) -> float:
    """The seconds of a processor that it has used; 0: it has ended."""
    with suppress(psutil.NoSuchProcess):
        times = psutil.Process(process).cpu_times()
        return float(times.user + times.system)
    return 0.0


def resident(process: int) -> int:
    """Its share of the memory in bytes, pages that it has in common with others by their number; 0: it has ended."""
    with suppress(psutil.NoSuchProcess):
        return int(psutil.Process(process).memory_full_info().pss)
    return 0


def peak_of(process: int) -> int:
    """The most memory that it ever had, in bytes; 0: it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def killed_when(process: subprocess.Popen[bytes], ready: Callable[[], bool], seconds: float) -> bool:
    """Wait for the end of a process, or kill it with all below it once it is ready; return whether it was killed.

    Raises RuntimeError when neither comes to it in time.
    """
    deadline = time.monotonic() + seconds
    try:
        while process.poll() is None:
            if ready():
                return True
            if time.monotonic() > deadline:
                raise RuntimeError("it did not end in time")
            time.sleep(0.05)
        return False
    finally:
        alive = process.poll() is None
        for victim in [process.pid, *descendants_of(process.pid)] if alive else ():
            with suppress(ProcessLookupError):  # it ended with the one before it
                os.kill(victim, signal.SIGKILL)
        process.wait()
