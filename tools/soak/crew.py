"""The producers and consumers of a soak, each a process, and what they report."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import psutil

from shardq.bench.stage import Place

from .consuming import Received, consume
from .plan import Plan
from .producing import Sent, produce

__all__ = ["Crew", "SoakFailed"]

END_SECONDS = 20.0


class SoakFailed(Exception):
    """Raised when a process of the soak ended by itself, or not everything came."""


class Crew:
    """Starts them when it is entered and ends them when it is left."""

    def __init__(self, place: Place, plan: Plan) -> None:
        self._place, self._plan = place, plan
        self._context = multiprocessing.get_context("spawn")
        self._stop_sending, self._stop_receiving = self._context.Event(), self._context.Event()
        self._processes: dict[str, BaseProcess] = {}
        self._reports: dict[Connection, str] = {}
        self.sent = self.received = 0
        self._seconds: list[float] = []

    def __enter__(self) -> Crew:
        for number in range(1, self._plan.consumers + 1):
            self._start(f"consumer {number}", consume, self._place, self._stop_receiving)
        for number in range(1, self._plan.producers + 1):
            self._start(f"producer {number}", produce, self._place, self._plan, self._stop_sending)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_sending.set()
        self._stop_receiving.set()
        for process in self._processes.values():
            process.join(0 if kind else END_SECONDS)
            if process.is_alive():
                process.terminate()
                process.join(END_SECONDS)

    def listen(self, seconds: float) -> None:
        """Take in what is reported, for so long, once at least. Raises SoakFailed when one has ended."""
        deadline = time.monotonic() + seconds
        left = 1.0
        while left > 0:
            left = max(0.0, deadline - time.monotonic())
            for reports in wait(list(self._reports), left):
                self._take(reports)

    def take_seconds(self) -> list[float]:
        """How long the messages took that came since the last call."""
        taken, self._seconds = self._seconds, []
        return taken

    def memory(self) -> dict[str, int]:
        """The resident bytes of each process."""
        return {
            name: int(psutil.Process(process.pid).memory_info().rss)
            for name, process in self._processes.items()
            if process.is_alive()
        }

    def drain(self, seconds: float) -> None:
        """Stop sending, and receive all that was sent. Raises SoakFailed when it does not come in so many seconds."""
        self._stop_sending.set()
        for name, process in self._processes.items():
            if name.startswith("producer"):
                self._finish(process)
        deadline = time.monotonic() + seconds
        while self.received < self.sent and time.monotonic() < deadline:
            self.listen(0.2)
        if self.received != self.sent:
            raise SoakFailed(f"{self.sent} messages were sent and {self.received} received")

    def _start(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        reports, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=work, args=(*arguments, sender), name=name, daemon=True)
        process.start()
        sender.close()
        self._processes[name], self._reports[reports] = process, name

    def _finish(self, process: BaseProcess) -> None:
        deadline = time.monotonic() + END_SECONDS
        while process.is_alive() and time.monotonic() < deadline:
            self.listen(0.05)
        process.join(0)

    def _take(self, reports: Connection) -> None:
        try:
            report = reports.recv()
        except EOFError:
            self._ended(reports)
            return
        if isinstance(report, Sent):
            self.sent += report.count
        elif isinstance(report, Received):
            self.received += len(report.seconds)
            self._seconds += report.seconds

    def _ended(self, reports: Connection) -> None:
        name = self._reports.pop(reports)
        process = self._processes[name]
        process.join(END_SECONDS)
        if process.exitcode or not self._stop_sending.is_set():
            raise SoakFailed(f"{name} ended by itself with exit code {process.exitcode}")
