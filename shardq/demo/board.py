"""Where the processes of a run tell each other how far they are."""

from __future__ import annotations

import time
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext

__all__ = ["Board"]

STARTED, STOPPED, KILLED = range(3)
PAUSE = 0.01


class Board:
    """Counters in shared memory, each written by one process only, and a few flags written by the first process.

    There is no lock in it: a process that is killed can leave none behind.
    """

    def __init__(self, context: SpawnContext, producers: int, workers: int) -> None:
        self._flags = context.RawArray("q", 3)
        self.producers_ready = context.RawArray("q", producers)
        self.workers_ready = context.RawArray("q", workers)
        self.sent = context.RawArray("q", producers)
        self.received = context.RawArray("q", workers)
        self.acked = context.RawArray("q", workers)
        self.lost = context.RawArray("q", workers)  # received, and their lease ran out before the ack
        self.redelivered = context.RawArray("q", workers)
        self.halted = context.RawArray("q", workers)  # messages held by a worker that waits to be killed

    def start(self) -> None:
        """Let everybody begin."""
        self._flags[STARTED] = 1

    def stop(self) -> None:
        """Let everybody end."""
        self._flags[STOPPED] = 1

    def set_killed(self) -> None:
        """Let those who wait to be killed go on: another one was."""
        self._flags[KILLED] = 1

    @property
    def stopped(self) -> bool:
        """True when the processes should end: they were told to, or the first process is gone."""
        first = parent_process()
        return bool(self._flags[STOPPED]) or (first is not None and not first.is_alive())

    @property
    def killed(self) -> bool:
        """True once a worker was killed."""
        return bool(self._flags[KILLED])

    def wait_for_start(self) -> None:
        """Return when everybody may begin, or should end."""
        while not self._flags[STARTED] and not self.stopped:
            time.sleep(PAUSE)

    def wait_to_be_killed(self) -> None:
        """Return when another worker was killed instead, or everybody should end."""
        while not self.killed and not self.stopped:
            time.sleep(PAUSE)
