"""A process of a pool, as its parent sees it."""

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
    """A worker process, what it last reported, and how it ended."""

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
        """Take in what the process has reported."""
        try:
            while self.channel.poll():
                self._take(self.channel.recv())
        except (EOFError, OSError):
            self.process.join(1.0)

    def hangs(self, seconds: float | None) -> bool:
        """True when it has held messages for so long without one of them being finished."""
        held = self.report.in_flight > 0 and self.ended is None
        return seconds is not None and held and time.monotonic() - self.progress_at > seconds

    def stop(self) -> None:
        """Ask the process to end after the message at hand."""
        self.process.terminate()

    def kill(self) -> None:
        """End the process at once, and what it has started; what it held comes back when the lease is over."""
        end_group(self.process.pid)
        self.process.kill()

    def close(self) -> None:
        """Give up what belongs to a process that has ended."""
        self.process.join()
        self.channel.close()
        self.process.close()

    def _take(self, word: WorkerReport | Ended) -> None:
        if isinstance(word, Ended):
            self.ended, word = word, word.report
        if _steps(word) != _steps(self.report) or not self.report.in_flight:
            self.progress_at = time.monotonic()
        self.report = word


def _steps(report: WorkerReport) -> tuple[int, ...]:
    return report.worked, report.failed, report.batches, report.store_faults
