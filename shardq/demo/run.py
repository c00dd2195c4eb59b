"""The run itself: producers and a pool of workers, the kill, and waiting for the last ack."""

from __future__ import annotations

import time

import msgspec

from shardq.demo.flight import FLIGHTS
from shardq.demo.plan import Plan
from shardq.demo.progress import Pace, View
from shardq.demo.records import Kill, Tally, read_kill
from shardq.demo.work import ACKED, LOST, RECEIVED, REDELIVERED, SENT, FlightHandler, produce
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.worker import PoolReport, WorkerPool
from shardq.worker.child_processes import ChildProcesses, ProcessFailed

__all__ = ["Run", "run"]

PATIENCE = 30.0  # seconds without any progress, beyond the visibility timeout
START_SECONDS = 120.0  # until all producers are ready


class Run(msgspec.Struct, frozen=True):
    """How a run went, as far as the first process knows. Times are seconds since 1970."""

    plan: Plan
    started_at: float
    ended_at: float
    kill: Kill | None
    redelivered: int


def run(plan: Plan, view: View) -> Run:
    """Send and work all flights of the plan; no process is left. Raises StoreUnavailable or ProcessFailed."""
    try:
        with ChildProcesses() as producers:
            return _Watch(plan, producers, view).run()
    except ProcessFailed as error:
        if isinstance(error.cause, StoreUnavailable | OutcomeUnknown):
            raise StoreUnavailable(str(error)) from error
        raise


class _Watch:
    """Runs a pool of workers beside the producers, and looks several times a second at what they have done."""

    def __init__(self, plan: Plan, producers: ChildProcesses, view: View) -> None:
        self._plan, self._producers, self._view = plan, producers, view
        self._tally = Tally(plan.records)
        self._pace: Pace | None = None  # from the start on
        self._moved_at = time.monotonic()
        self._last: tuple[float | None, int, int] = (None, 0, 0)
        self._pool = WorkerPool(
            plan.url,
            plan.queue,
            FlightHandler(plan.records, plan.kill_after),
            processes=plan.workers,
            by_batch=True,
            batch=plan.batch,
            codec=FLIGHTS,
            on_progress=self._look,
        )
        self._kill: Kill | None = None
        self._done = False

    def run(self) -> Run:
        for place in range(self._plan.producers):
            self._producers.start(f"producer {place}", produce, self._plan, place)
        self._pool.run()
        started_at = self._producers.started_at
        if not self._done or started_at is None:  # the pool was told to end: Ctrl-C
            raise KeyboardInterrupt
        return Run(self._plan, started_at, time.time(), self._kill, self._tally.count(REDELIVERED))

    def _look(self, report: PoolReport) -> None:
        self._producers.listen()
        if report.total.failed:
            raise ProcessFailed(f"a worker failed: {report.total.last_failure}")
        sent, acked = self._tally.count(SENT), self._tally.count(ACKED)
        self._check_moving(sent, acked)
        if self._producers.started_at is not None:
            self._show(sent, acked)

    def _show(self, sent: int, acked: int) -> None:
        if self._kill is None and (kill := read_kill(self._plan.records)):
            self._kill = kill
            self._view.say(_announcement(kill, self._plan))
        self._pace = self._pace or Pace()
        self._view.show(self._pace.step(sent, acked, self._in_flight(acked)))
        if acked >= self._plan.messages and not self._done:
            self._done = True
            self._pool.stop()

    def _check_moving(self, sent: int, acked: int) -> None:
        """Raise ProcessFailed when the producers do not become ready, or nothing is sent or acked any more."""
        now, started_at = time.monotonic(), self._producers.started_at
        if (started_at, sent, acked) != self._last:
            self._moved_at, self._last = now, (started_at, sent, acked)
        still = now - self._moved_at
        if started_at is None and still > START_SECONDS:
            raise ProcessFailed(f"the producers are not ready after {START_SECONDS:.0f} s")
        if started_at is not None and still > self._plan.visibility_timeout + PATIENCE:
            raise ProcessFailed(f"nothing has moved for {PATIENCE:.0f} s, with {sent} sent and {acked} acked")

    def _in_flight(self, acked: int) -> int:
        """Messages that a worker holds, or that the killed one held until their lease expires."""
        count = self._tally.count
        came_back = min(self._kill.held if self._kill else 0, count(REDELIVERED))
        return max(0, count(RECEIVED) - acked - count(LOST) - came_back)


def _announcement(kill: Kill, plan: Plan) -> str:
    return (
        f"worker {kill.place} was killed (SIGKILL) while it held {kill.held} messages: {kill.held // 2} worked, "
        f"none acked\n  the pool starts another process in its place; the messages are delivered again when their "
        f"lease expires, in {plan.visibility_timeout:g} s"
    )
