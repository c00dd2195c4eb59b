"""A file through which the campaign sets the clocks of its clients, while they run."""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

__all__ = ["Dial", "distort_time"]

_STATE = struct.Struct("<qq")  # nanoseconds that the clock is ahead, 1: hurry


class Dial:
    """Shared by all processes that open the same file."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_STATE.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _STATE.size)

    @property
    def ahead(self) -> int:
        """Nanoseconds by which the time of day is ahead of the machine's."""
        return int(_STATE.unpack_from(self._map)[0])

    @ahead.setter
    def ahead(self, nanoseconds: int) -> None:
        struct.pack_into("<q", self._map, 0, nanoseconds)

    @property
    def hurry(self) -> bool:
        """The faults are over: clients finish their work without pauses and without giving up any of it."""
        return bool(_STATE.unpack_from(self._map)[1])

    @hurry.setter
    def hurry(self, hurry: bool) -> None:
        struct.pack_into("<q", self._map, 8, int(hurry))


def distort_time(dial: Dial) -> None:
    """Let this process see the time of day as the dial has it; monotonic clocks stay. To be called before imports."""
    nanoseconds = time.time_ns

    def time_ns() -> int:
        return nanoseconds() + dial.ahead

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
