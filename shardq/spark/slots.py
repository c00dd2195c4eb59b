"""How many tasks Spark runs at a time."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["slots_of", "task_slots"]

_LOCAL = re.compile(rb"(?:spark\.master=|--master[\0 =])local(?:\[(\d+|\*)(?:,\d+)?\])?\0")


def task_slots() -> int:
    """Return how many tasks run at a time, as far as a process that plans can know: Spark tells it nothing of that.

    For a local master it is what the command of the JVM, which started this process, says. Else the cores of this
    machine stand for those of the cluster.
    """
    try:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    except OSError:  # there is no such file on other systems
        command = b""
    return slots_of(command) or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()) or 2


def slots_of(command: bytes) -> int | None:
    """Return the threads of the local master that the command of a JVM names, by its arguments; None: it names none."""
    found = _LOCAL.findall(command + b"\0")
    if not found or found[-1] == b"*":
        return None
    return int(found[-1] or 1)
