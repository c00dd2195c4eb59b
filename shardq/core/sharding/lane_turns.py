"""Which lane of its group a message is sent to: each in turn."""

from __future__ import annotations

import random
import threading

from shardq.storage.per_process import PerProcess

__all__ = ["MOST_GROUPS", "LaneTurns"]

MOST_GROUPS = 10_000
"""Groups whose last lane is remembered; the one that began first is forgotten for a further one."""


class LaneTurns:
    """Turns round the lanes of each group of a queue, from a random one on.

    So what a client sends to a group, alone or in bulk, is spread evenly. The turn of a group that was forgotten
    begins anew, which costs nothing but evenness. A forked child has turns of its own.
    """

    def __init__(self) -> None:
        self._turns = PerProcess(_Turns)

    def next(self, group: str, lanes: int) -> int:
        """The number of the lane for the next message of a group, of so many lanes."""
        return self._turns.get().next(group, lanes)


class _Turns:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, int] = {}

    def next(self, group: str, lanes: int) -> int:
        with self._lock:
            last = self._last.get(group)
            if last is None:
                last = random.randrange(lanes)
                if len(self._last) == MOST_GROUPS:
                    del self._last[next(iter(self._last))]
            self._last[group] = number = (last + 1) % lanes
            return number
