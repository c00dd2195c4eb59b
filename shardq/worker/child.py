"""A worker process, seen from the pool that started it."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from shardq.worker.process import Ended, WorkerPlan, run_process
from shardq.worker.report import WorkerReport
from shardq.worker.signals import end_group

__all__ = ["Child"]


class Child:
    """A worker process, its last report, and how it ended."""

    def __init__(self, plan: WorkerPlan, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel: Connection
        self.channel, theirs = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(
            target=run_process, args=(plan, theirs), name=name, daemon=False
        )
        self.process.start()
        theirs.close()
        self.report = WorkerReport()
        self.ended: Ended | None = None
        self.progress_at = time.monotonic()

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self.process.is_alive()

    def listen(self) -> None:
        """Read the reports of the process."""
        try:
            while self.channel.poll():
                self._take(self.channel.recv())
        except (EOFError, OSError):
            self.process.join(1.0)

    def hangs(self, seconds: float | None) -> bool:
        """True when the process has held messages for so many seconds without finishing one."""
        held = self.report.in_flight > 0 and self.ended is None
        return seconds is not None and held and time.monotonic() - self.progress_at > seconds

    def stop(self) -> None:
        """Ask the process to end after the message at hand."""
        self.process.terminate()

    def kill(self) -> None:
        """Kill the process and what it has started. Its messages are delivered again when their leases expire."""
        end_group(self.process.pid)
        self.process.kill()

    def close(self) -> None:
        """Free the resources of a process that has ended."""
        self.process.join()
        self.channel.close()
        self.process.close()

    def _take(self, report: WorkerReport | Ended) -> None:
        if isinstance(report, Ended):
            self.ended, report = report, report.report
        if _steps(report) != _steps(self.report) or not self.report.in_flight:
            self.progress_at = time.monotonic()
        self.report = report


def _steps(report: WorkerReport) -> tuple[int, ...]:
    return report.worked, report.failed, report.batches, report.store_faults
