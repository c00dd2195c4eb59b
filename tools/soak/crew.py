"""The producers and consumers of a soak, each a process, and what they report."""

from __future__ import annotations

import time
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

from shardq.worker.child_processes import ChildProcesses, ProcessFailed

from ..bench.stores.stage import Place
from .clients import Received, Sent, consume, produce
from .plan import Plan

__all__ = ["Crew", "SoakFailed"]

START_SECONDS, END_SECONDS = 120.0, 20.0


class SoakFailed(Exception):
    """Raised when a process of the soak ended by itself, or not everything came."""


class Crew:
    """Starts them when it is entered and ends them when it is left."""

    def __init__(self, place: Place, plan: Plan) -> None:
        self._place, self._plan = place, plan
        self._processes = ChildProcesses(patience=END_SECONDS)
        self._producers = [f"producer {number}" for number in range(1, plan.producers + 1)]
        self.sent = self.received = 0
        self._seconds: list[float] = []

    def __enter__(self) -> Self:
        self._processes.__enter__()
        for number in range(1, self._plan.consumers + 1):
            self._processes.start(f"consumer {number}", consume, self._place)
        for name in self._producers:
            self._processes.start(name, produce, self._place, self._plan)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.__exit__(kind, error, trace)

    def begin(self) -> None:
        """Wait until all processes are ready, and let them go. Raises SoakFailed."""
        deadline = time.monotonic() + START_SECONDS
        while self._processes.started_at is None:
            self.listen(0.2)
            if time.monotonic() > deadline:
                raise SoakFailed(f"not all processes are ready after {START_SECONDS:g} s")

    def listen(self, seconds: float) -> None:
        """Take in what is reported, for so long, once at least. Raises SoakFailed when a process has failed."""
        deadline = time.monotonic() + seconds
        left = 1.0
        while left > 0:
            left = max(0.0, deadline - time.monotonic())
            try:
                reports = self._processes.listen(left)
            except ProcessFailed as error:
                raise SoakFailed(str(error)) from error
            for _, report in reports:
                self._take(report)

    def take_seconds(self) -> list[float]:
        """How long the messages took that came since the last call."""
        taken, self._seconds = self._seconds, []
        return taken

    def memory(self) -> dict[str, int]:
        """The resident bytes of each process."""
        found = {}
        for name, pid in self._processes.running.items():
            with suppress(psutil.NoSuchProcess):  # it has just ended, and is heard of next
                found[name] = int(psutil.Process(pid).memory_info().rss)
        return found

    def drain(self, seconds: float) -> None:
        """Stop sending, and receive all that was sent. Raises SoakFailed when it does not come in so many seconds."""
        self._processes.stop(*self._producers)
        deadline = time.monotonic() + END_SECONDS
        while not self._processes.running.keys().isdisjoint(self._producers) and time.monotonic() < deadline:
            self.listen(0.05)
        deadline = time.monotonic() + seconds
        while self.received < self.sent and time.monotonic() < deadline:
            self.listen(0.2)
        if self.received != self.sent:
            raise SoakFailed(f"{self.sent} messages were sent and {self.received} received")

    def _take(self, report: Sent | Received) -> None:
        if isinstance(report, Sent):
            self.sent += report.count
        else:
            self.received += len(report.seconds)
            self._seconds += report.seconds
