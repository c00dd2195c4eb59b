"""Processes of tests, which end with them, and waits for what others do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["eventually", "running"]


@contextmanager
def running(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process with these options of ``Popen``; kill it if it still runs at the end, and close its pipes.

    A pipe that is left to the garbage collector fails whichever test runs when it is collected.
    """
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was written to it is not read any more
                    pipe.close()


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Wait until a condition holds; return False when it does not within the time."""
    until = time.monotonic() + seconds
    while not (met := bool(condition())) and time.monotonic() < until:
        time.sleep(0.01)
    return met
