"""The run itself: a queue, its producers and workers, the kill, and waiting for the last ack."""

from __future__ import annotations

import time

import msgspec

from shardq.demo.crew import Crew
from shardq.demo.errors import ProcessFailed
from shardq.demo.plan import Plan
from shardq.demo.progress import Pace, View

__all__ = ["Kill", "Run", "run"]

TICK = 0.02
PATIENCE = 30.0  # seconds without any progress, beyond the visibility timeout


class Kill(msgspec.Struct, frozen=True):
    """The worker that was killed, when, and how many messages it held."""

    place: int
    at: float
    held: int


class Run(msgspec.Struct, frozen=True):
    """How a run went, as far as the first process knows. Times are seconds since 1970."""

    plan: Plan
    started_at: float
    ended_at: float
    kill: Kill | None
    redelivered: int


def run(plan: Plan, view: View) -> Run:
    """Send and work all flights of the plan; no process is left. Raises StoreUnavailable or ProcessFailed."""
    with Crew(plan) as crew:
        watch = _Watch(plan, crew, view)
        crew.start()
        watch.until_ready()
        started_at = time.time()
        crew.board.start()
        watch.until_done()
        return Run(plan, started_at, time.time(), watch.kill, sum(crew.board.redelivered))


class _Watch:
    """Looks at the board every few milliseconds, and shows what is there."""

    def __init__(self, plan: Plan, crew: Crew, view: View) -> None:
        self._plan, self._crew, self._view = plan, crew, view
        self._pace = Pace()
        self._moved_at, self._last = time.monotonic(), (0, 0)
        self.kill: Kill | None = None

    def until_ready(self) -> None:
        """Wait until all processes stand at the start."""
        board, everybody = self._crew.board, self._plan.producers + self._plan.workers
        while sum(board.producers_ready) + sum(board.workers_ready) < everybody:
            self._tick()
        self._pace = Pace()

    def until_done(self) -> None:
        """Wait until every message was acked."""
        board = self._crew.board
        while sum(board.acked) < self._plan.messages:
            if self.kill is None:
                self._kill_who_halted()
            self._tick()
            self._show()
        self._show()

    def _tick(self) -> None:
        self._crew.check()
        board = self._crew.board
        now, reached = time.monotonic(), (sum(board.sent), sum(board.acked))
        if reached != self._last:
            self._moved_at, self._last = now, reached
        if now > self._moved_at + self._plan.visibility_timeout + PATIENCE:
            sent, acked = reached
            raise ProcessFailed(f"nothing has moved for {PATIENCE:.0f} s, with {sent} sent and {acked} acked")
        time.sleep(TICK)

    def _show(self) -> None:
        board = self._crew.board
        came_back = min(self.kill.held if self.kill else 0, sum(board.redelivered))
        in_flight = sum(board.received) - sum(board.acked) - sum(board.lost) - came_back
        self._view.show(self._pace.step(sum(board.sent), sum(board.acked), max(0, in_flight)))

    def _kill_who_halted(self) -> None:
        halted = [(place, held) for place, held in enumerate(self._crew.board.halted) if held]
        if not halted:
            return
        place, held = halted[0]
        self._crew.kill(place)
        self.kill = Kill(place, time.time(), held)
        self._crew.board.set_killed()
        self._crew.replace()
        self._view.say(_announcement(self.kill, self._plan))


def _announcement(kill: Kill, plan: Plan) -> str:
    return (
        f"worker {kill.place} was killed (SIGKILL) while it held {kill.held} messages: {kill.held // 2} worked, "
        f"none acked\n  worker {plan.workers} takes its place; the messages come back when their lease is over, "
        f"in {plan.visibility_timeout:g} s"
    )
