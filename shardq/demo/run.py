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
from shardq.worker.processes import ChildProcesses, ProcessFailed

__all__ = ["Run", "run"]

PATIENCE = 30.0  # seconds without any progress, beyond the visibility timeout


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
        self._tally, self._pace = Tally(plan.records), Pace()
        self._moved_at, self._last = time.monotonic(), (0, 0)
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
        sent, acked = self._tally.count(SENT), self._tally.count(ACKED)
        self._check(report, (sent, acked))
        if self._kill is None and (kill := read_kill(self._plan.records)):
            self._kill = kill
            self._view.say(_announcement(kill, self._plan))
        self._view.show(self._pace.step(sent, acked, self._in_flight(acked)))
        if acked >= self._plan.messages and not self._done:
            self._done = True
            self._pool.stop()

    def _check(self, report: PoolReport, reached: tuple[int, int]) -> None:
        """Raise ProcessFailed when a producer or a handler has failed, or nothing moves any more."""
        before = self._producers.started_at
        self._producers.listen()
        if before != self._producers.started_at:
            self._pace = Pace()
        if report.total.failed:
            raise ProcessFailed(f"a worker failed: {report.total.last_failure}")
        now = time.monotonic()
        if reached != self._last:
            self._moved_at, self._last = now, reached
        if now > self._moved_at + self._plan.visibility_timeout + PATIENCE:
            sent, acked = reached
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
