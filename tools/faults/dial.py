"""A file through which the campaign sets the clocks of its clients, while they run."""

from __future__ import annotations

import mmap
import struct
import time
from enum import Enum
from pathlib import Path

__all__ = ["Dial", "Loss", "distort_time", "true_monotonic_ns"]

# Nanoseconds that the clock is ahead, 1: hurry, nanoseconds asleep, what is away.
_STATE = struct.Struct("<qqqhhh")
_AWAY = struct.Struct("<hhh")


class Loss(Enum):
    """What becomes of requests that concern a shard which is away."""

    REFUSED = 1  # at once, and nothing is done
    SILENT = 2  # nothing is done, and no answer comes
    UNANSWERED = 3  # they are done, and no answer comes


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

    @property
    def asleep(self) -> int:
        """Nanoseconds for which the machine was suspended: its monotonic clocks stood still meanwhile."""
        return int(_STATE.unpack_from(self._map)[2])

    @asleep.setter
    def asleep(self, nanoseconds: int) -> None:
        struct.pack_into("<q", self._map, 16, nanoseconds)

    @property
    def away(self) -> tuple[int, int, Loss] | None:
        """The time shard and the number of the shard that cannot be reached, and what becomes of requests to it."""
        loss, time_shard, number = _AWAY.unpack_from(self._map, 24)
        return (time_shard, number, Loss(loss)) if loss else None

    @away.setter
    def away(self, away: tuple[int, int, Loss] | None) -> None:
        time_shard, number, loss = away or (0, 0, None)
        _AWAY.pack_into(self._map, 24, loss.value if loss else 0, time_shard, number)


true_monotonic_ns = time.monotonic_ns
"""The monotonic clock of the machine that all clients are on: the one that histories go by."""


def distort_time(dial: Dial, *, sleeps: bool = True) -> None:
    """Let this process see the time of day and the sleep of its machine as the dial has them; before other imports.

    Without ``sleeps`` it runs on while the others sleep. The clock that goes on while a machine is suspended,
    CLOCK_BOOTTIME, is left as it is.
    """
    nanoseconds = time.time_ns

    def time_ns() -> int:
        return nanoseconds() + dial.ahead

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
    if not sleeps:
        return

    def monotonic_ns() -> int:
        return true_monotonic_ns() - dial.asleep

    time.monotonic_ns = monotonic_ns
    time.monotonic = lambda: monotonic_ns() / 1e9
