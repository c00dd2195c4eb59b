"""The processes of a run: started, watched, one of them killed on purpose, and all of them ended."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Self

import msgspec

from shardq.demo.board import Board
from shardq.demo.errors import ProcessFailed
from shardq.demo.plan import Plan
from shardq.demo.producing import produce
from shardq.demo.working import work
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.worker.signals import ignore_interrupts, without_interrupts

__all__ = ["Crew"]

Task = Callable[[Plan, Board, int], None]
END_SECONDS = 5.0  # for a process to end when it is told to, before it is made to


class Member(msgspec.Struct, frozen=True):
    """A process of the crew, and the end of the pipe on which it says why it failed."""

    name: str
    process: SpawnProcess
    news: Connection


class Crew:
    """Producers and workers. Leaving the ``with`` block ends them all, whatever has happened."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._context = multiprocessing.get_context("spawn")
        self.board = Board(self._context, plan.producers, plan.worker_places)
        self._members: dict[str, Member] = {}

    def start(self) -> None:
        """Start everybody; they wait for ``board.start``."""
        for place in range(self._plan.producers):
            self._start(f"producer-{place}", produce, place)
        for place in range(self._plan.workers):
            self._start(f"worker-{place}", work, place)

    def replace(self) -> None:
        """Start the worker that takes the place of the killed one."""
        self._start(f"worker-{self._plan.workers}", work, self._plan.workers)

    def kill(self, place: int) -> None:
        """End a worker with SIGKILL, which leaves it no time for anything."""
        member = self._members.pop(f"worker-{place}")
        member.process.kill()
        _close(member)

    def check(self) -> None:
        """Raise what a process failed with: StoreUnavailable or ProcessFailed."""
        for member in self._members.values():
            if member.process.exitcode:
                raise _failure(member)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.board.stop()
        deadline = time.monotonic() + (END_SECONDS if error is None else 1.0)
        for member in self._members.values():
            member.process.join(max(0.0, deadline - time.monotonic()))
            member.process.kill()
            _close(member)
        self._members.clear()

    def _start(self, name: str, task: Task, place: int) -> None:
        news, theirs = self._context.Pipe(duplex=False)
        arguments = (task, self._plan, self.board, place, theirs)
        process = self._context.Process(target=_run, name=name, args=arguments, daemon=True)
        with theirs, without_interrupts():  # Ctrl-C is for this process, which then ends the others
            process.start()
            self._members[name] = Member(name, process, news)


def _run(task: Task, plan: Plan, board: Board, place: int, news: Connection) -> None:
    """The body of every process."""
    ignore_interrupts()
    try:
        task(plan, board, place)
    except Exception as error:  # whatever it is, the first process has to hear of it
        news.send((isinstance(error, StoreUnavailable | OutcomeUnknown), f"{type(error).__name__}: {error}"))
        sys.exit(1)


def _failure(member: Member) -> StoreUnavailable | ProcessFailed:
    try:
        unavailable, text = member.news.recv() if member.news.poll() else (False, _ending(member.process))
    except EOFError:
        unavailable, text = False, _ending(member.process)
    text = f"{member.name} failed: {text}"
    return StoreUnavailable(text) if unavailable else ProcessFailed(text)


def _ending(process: SpawnProcess) -> str:
    code = process.exitcode or 0
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _close(member: Member) -> None:
    member.process.join()
    member.process.close()
    member.news.close()
