"""A slot of a pool: one process at a time, which is replaced when it dies."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from shardq.base.log import Log, drop_unwritten
from shardq.client.outcome import Backoff
from shardq.errors import ShardqError, StoreUnavailable
from shardq.worker.process import ORPHAN_SECONDS, Ended, WorkerPlan, run_process
from shardq.worker.report import WorkerReport
from shardq.worker.signals import end_group, without_interrupts

if TYPE_CHECKING:
    from shardq.metrics.measures import Measures

__all__ = ["Child", "Slot", "WorkersFailing"]

_log = Log(__name__)

PAUSES = Backoff(0.5, 30.0)
SILENT_SECONDS = 5.0  # without a report, beyond its timeout, after which a process is taken to hang
STILL_SECONDS = 3.0  # without a read of the reports: this process stood still, as after Ctrl-Z


class WorkersFailing(ShardqError):
    """Raised when the processes of a pool die again and again without finishing a message."""


class Child:
    """A worker process, its last report, and how it ended."""

    def __init__(self, plan: WorkerPlan, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel: Connection
        self.channel, theirs = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(
            target=run_process, args=(plan, theirs), name=name, daemon=False
        )
        drop_unwritten()
        self.process.start()
        theirs.close()
        self.report = WorkerReport()
        self.measures: Measures | None = None  # as far as they are asked for
        self.ended: Ended | None = None
        self.reported = self._is_cut_off = False
        self.progress_at = self._heard_at = self._listened_at = time.monotonic()
        self._stood_still = False
        self.retired = False  # it was asked to end because it is one too many

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self.process.is_alive()

    def listen(self) -> None:
        """Read the reports of the process."""
        now = time.monotonic()
        still = now - self._listened_at > STILL_SECONDS
        # Once: an `on_progress` that is always slow must hide no hanging handler.
        if still and not self._stood_still:
            self.progress_at = self._heard_at = now
        self._listened_at, self._stood_still = now, still
        try:
            while self.channel.poll():
                self._take(self.channel.recv())
        except (EOFError, OSError):
            self._is_cut_off = True
            if self.ended is None:
                self.process.join(1.0)

    def why_hanging(self, seconds: float | None) -> str:
        """Return what shows that the process hangs: no message finished for ``seconds``, or no reports; or "".

        One that waits for a permit, or for the store, does not hang. One that has become another program, or is
        stopped, sends no reports, and neither does one in which no other thread can run. Threads of a handler may hold
        up the end of one that has worked.
        """
        if self.ended is not None or (seconds is None and self._is_cut_off):
            seconds = max(seconds or 0.0, ORPHAN_SECONDS)  # it ends sooner if it can
        if seconds is None:
            return ""
        now, held = time.monotonic(), self.ended is None and self.report.in_flight > self.report.settling
        if (self.reported or self._is_cut_off) and now - self._heard_at > seconds + SILENT_SECONDS:
            return f"has sent no report for {seconds + SILENT_SECONDS:g} seconds"
        return (
            f"has finished no message for {seconds:g} seconds"
            if held and now - self.progress_at > seconds
            else ""
        )

    def stop(self) -> None:
        """Ask the process to end after the message at hand."""
        self.process.terminate()

    def kill(self) -> None:
        """Kill the process and those that it has started. Its messages are delivered again when their leases expire."""
        end_group(self.process.pid)
        self.process.kill()

    def close(self) -> None:
        """Free the resources of a process that has ended."""
        self.process.join()
        self.channel.close()
        self.process.close()

    def _take(self, report: WorkerReport | Ended | Measures) -> None:
        self.reported, self._heard_at = True, time.monotonic()
        if not isinstance(report, WorkerReport | Ended):
            self.measures = report
            return
        if isinstance(report, Ended):
            self.ended, report = report, report.report
        if _steps(report) != _steps(self.report) or not self.report.in_flight:
            self.progress_at = time.monotonic()
        self.report = report


def _steps(report: WorkerReport) -> tuple[int, ...]:
    """Return the counters that change while a process gets on.

    A worker of tasks receives others beside one that hangs.
    """
    return (
        report.handled,
        report.returned,
        report.lease_lost,
        report.store_faults,
        report.permit_waits,
    )


class Slot:
    """Keeps one process running until it ends on its own or is stopped. While it is retired it has none."""

    def __init__(self, plan: WorkerPlan, name: str, max_restarts: int, *, retired: bool = False) -> None:
        self._plan, self._name, self._max_restarts = plan, name, max_restarts
        self.retired = retired
        self._past = WorkerReport()
        self._measured: Measures | None = None  # by processes that have ended
        self._counting = threading.Lock()
        self._start_at = time.monotonic()
        self._ends = 0  # in a row, without one settled message
        self._deaths = 0  # of those: while the store could be reached
        self._stopping = False
        self.restarts = 0
        self.left_in_flight = 0
        self.finished = False
        self.child: Child | None = None

    @property
    def running(self) -> bool:
        """True while there is a process."""
        return self.child is not None

    @property
    def at_rest(self) -> bool:
        """True when it has no process, and starts none unless it is taken up again."""
        return self.child is None and (self.finished or self.retired)

    @property
    def idle(self) -> bool:
        """True while its process holds no message."""
        return self.child is not None and self.child.report.in_flight == 0

    @property
    def report(self) -> WorkerReport:
        """The counters of the processes of this slot."""
        return self._past + self.child.report if self.child is not None else self._past

    @property
    def measures(self) -> Measures | None:
        """Return the measures of the processes of this slot; None: there are none yet."""
        with self._counting:
            return _sum(self._measured, None if self.child is None else self.child.measures)

    def start_if_due(self) -> None:
        """Start a process if there is none and the pause after the last crash has passed."""
        if self.child is None and not self.at_rest and time.monotonic() >= self._start_at:
            with without_interrupts():
                self.child = Child(self._plan, self._name)

    def supervise(self, handler_timeout: float | None) -> None:
        """Read the reports of the process, and replace it when it has died or hangs. Raises the error it ended with."""
        child = self.child
        if child is None:
            return
        child.listen()
        if why := child.why_hanging(handler_timeout):
            _log.warning("%s %s and is killed", self._name, why)
            child.kill()
            child.process.join()
        if not child.alive:
            child.listen()
            if child.ended is None:
                # Commands that it ran must not continue beside their messages' next deliveries.
                end_group(child.process.pid)
            self._handle_end(child)

    def retire(self) -> None:
        """Let the process end after the messages at hand, and start none until :meth:`take_up`."""
        self.retired = True
        if self.child is not None:
            self.child.retired = True
            self.child.stop()

    def take_up(self) -> None:
        """Start a process again, once the one that was retired has ended."""
        self.retired = False

    def stop(self, *, at_once: bool) -> None:
        """Start no more processes, and ask the running one to end."""
        if self.child is None:
            self.finished = True
        elif at_once:
            self.child.kill()
        elif not self._stopping:
            self.child.stop()
        self._stopping = True

    def signal(self, number: int) -> None:
        """Send a signal to the process, if there is one that has begun to handle signals."""
        if self.child is not None and self.child.reported and self.child.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.child.process.pid, number)

    def kill(self) -> None:
        """Kill the process, if there is one."""
        if self.child is not None:
            self.child.kill()
            self._forget(self.child)

    def _handle_end(self, child: Child) -> None:
        code = child.process.exitcode
        self._forget(child)
        error, crash = (child.ended.error, child.ended.crash) if child.ended is not None else (None, "")
        if child.retired and not self._stopping and (error is None or error.retryable):
            return
        if error is not None and not error.retryable:
            self.finished = True
            raise error
        terminated = child.ended is not None and child.ended.terminated
        if self._stopping or (child.ended is not None and error is None and not (crash or terminated)):
            self.finished = True
            return
        why = crash or f"{self._name} ended {'on a SIGTERM' if terminated else f'with exit code {code}'}"
        self._restart(child, error or WorkersFailing(why))

    def _restart(self, child: Child, error: ShardqError) -> None:
        self._ends += 1
        if child.report.settled:
            self._ends, self._deaths = 1, 0
        if not isinstance(error, StoreUnavailable):  # else a new pool could not begin either
            self._deaths += 1
        if self._deaths > self._max_restarts:
            self.finished = True
            if isinstance(error, WorkersFailing):
                error = WorkersFailing(
                    f"{error}, for the {self._deaths}. time in a row without a settled message: see its log; "
                    f"more than max_restarts={self._max_restarts} are for a queue with many messages that kill"
                )
            raise error
        pause = PAUSES.delay(self._ends)
        _log.warning("%s; %s is started again in %.1f seconds", error, self._name, pause)
        self.restarts += 1
        self._start_at = time.monotonic() + pause

    def _forget(self, child: Child) -> None:
        child.close()
        self.left_in_flight += child.report.in_flight if child.ended is None else 0
        self._past += _without_messages_in_flight(child.report)
        with self._counting:  # a thread that asks for the measures sees those of a process once
            self._measured = _sum(self._measured, child.measures)
            self.child = None


def _sum(one: Measures | None, other: Measures | None) -> Measures | None:
    return one if other is None else other if one is None else one + other


def _without_messages_in_flight(report: WorkerReport) -> WorkerReport:
    return report + WorkerReport(in_flight=-report.in_flight, settling=-report.settling)
