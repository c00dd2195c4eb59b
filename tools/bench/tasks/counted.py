"""What the tasks of every system do: as little as can be, and count."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

__all__ = ["KEEPS", "RESULT_SECONDS", "URL", "ran"]

URL = os.environ.get("TASKS_URL", "")
KEEPS = os.environ.get("TASKS_KEEP") == "1"  # results are stored, and kept for an hour
RESULT_SECONDS = 3_600

_LAST = int(os.environ.get("TASKS_COUNT", "0"))
_numbers = itertools.count(1)
_began: list[float] = []


def ran() -> None:
    """A task has run. When all have, the seconds from the first to the last are in the file of the run.

    Behind them are those of the processor that this process took, which say something on a busy machine, too.
    """
    number = next(_numbers)
    if number == 1:
        _began.extend([time.perf_counter(), time.process_time()])
    if number == _LAST:
        seconds = time.perf_counter() - _began[0], time.process_time() - _began[1]
        Path(os.environ["TASKS_DONE"]).write_text(f"{seconds[0]} {seconds[1]}")
