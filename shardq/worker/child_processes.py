"""Child processes that work together, and end with the ``with`` block that started them."""

from __future__ import annotations

import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Self

from shardq.base.texts import described
from shardq.errors import ShardqError
from shardq.worker.process import sendable
from shardq.worker.signals import ignore_interrupts, without_interrupts

__all__ = ["ChildProcesses", "Parent", "ProcessFailed"]

_SECONDS_AFTER_ERROR = 1.0


class ProcessFailed(ShardqError):
    """Raised when a child process failed, died, or was not ready in time.

    ``cause`` is the error that shardq raised in the process, if that is why it failed; ``trace`` is where.
    """

    def __init__(self, text: str, *, cause: ShardqError | None = None, trace: str = "") -> None:
        super().__init__(text)
        self.cause, self.trace = cause, trace


class _Signal(Enum):
    """The words between a process and its parent."""

    READY = "ready"  # a process waits for the others
    GO = "go"  # all are ready
    REPORT = "report"
    DONE = "done"
    FAILED = "failed"
    STOP = "stop"


class Parent:
    """A child process's connection to the process that started it."""

    def __init__(self, channel: Connection) -> None:
        self._channel, self._stopped = channel, False

    def ready(self) -> float:
        """Wait until all processes that were started together are ready; returns the moment, a monotonic time.

        Raises SystemExit when this process is asked to end meanwhile.
        """
        self._channel.send((_Signal.READY, None))
        if self._receive() is not _Signal.GO:
            sys.exit()
        return time.monotonic()

    def report(self, value: object) -> None:
        """Send a value, which is pickled."""
        self._channel.send((_Signal.REPORT, value))

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``. True as soon as this process is asked to end, or its parent is gone."""
        if not self._stopped and self._channel.poll(seconds):
            self._stopped = self._receive() is _Signal.STOP
        return self._stopped

    @property
    def stopped(self) -> bool:
        """True when this process is asked to end, or its parent is gone."""
        return self.wait(0.0)

    def _receive(self) -> _Signal:
        try:
            return _Signal(self._channel.recv())
        except (EOFError, OSError):
            return _Signal.STOP


Work = Callable[..., Any]  # called with the Parent, then with the arguments


class _Child:
    def __init__(self, name: str, work: Work, arguments: Sequence[Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=_run, args=(work, arguments, theirs), name=name, daemon=True
        )
        with theirs, without_interrupts():  # Ctrl-C is for this process, which then ends the others
            self.process.start()
        self.name, self.result = name, None
        self.ready = self.ended = False

    def send(self, word: _Signal) -> None:
        with suppress(OSError):  # it has ended
            self.channel.send(word)

    def take(self) -> list[Any]:
        """Read the next word of the process; returns the value that it reports, if any. Raises ProcessFailed."""
        try:
            word, value = self.channel.recv()
        except (EOFError, OSError):
            self.process.join()
            raise ProcessFailed(f"{self.name} {_ending(self.process)}") from None
        if word is _Signal.FAILED:
            reason, cause, trace = value
            raise ProcessFailed(f"{self.name} failed: {reason}", cause=cause, trace=trace)
        if word is _Signal.DONE:
            self.result, self.ended = value, True
        self.ready = self.ready or word is _Signal.READY
        return [value] if word is _Signal.REPORT else []

    def end(self, seconds: float) -> None:
        self.process.join(seconds)
        self.process.kill()
        self.process.join()
        self.process.close()


class ChildProcesses:
    """Processes that all end with the ``with`` block, also after an error.

    At its end they are asked to end, and killed after ``patience`` seconds, or after one second if the block raised an
    error. They ignore Ctrl-C: this process gets it, and ends them.

    >>> with ChildProcesses() as processes:  # doctest: +SKIP
    ...     processes.start("sum", add, 1, 2)  # runs add(parent, 1, 2) in a new process
    ...     processes.results()
    [3]
    """

    def __init__(self, *, patience: float = 5.0) -> None:
        self._patience = patience
        self._children: dict[str, _Child] = {}
        self.started_at: float | None = None  # when all were ready, in seconds since 1970

    def start(self, name: str, work: Work, *arguments: Any) -> None:
        """Start a process that calls ``work(parent, *arguments)``, where ``parent`` is a :class:`Parent`.

        The function is found by its name in the new process, and the arguments are pickled.
        """
        self._children[name] = _Child(name, work, arguments)

    def listen(self, seconds: float = 0.0) -> list[tuple[str, Any]]:
        """Wait up to ``seconds`` for reports; returns the first ones, each with the name of its process.

        Raises ProcessFailed when a process has failed.
        """
        listening = {child.channel: child for child in self._running()}
        found: list[tuple[str, Any]] = []
        for channel in wait(list(listening), seconds) if listening else ():
            child = listening[channel]  # type: ignore[index]
            found += [(child.name, value) for value in child.take()]
        self._go_if_ready()
        return found

    def results(self, *, start_seconds: float = 120.0) -> list[Any]:
        """Return the results of the functions, in the order of the starts, once all have ended.

        Raises ProcessFailed when one has failed, or is not ready after ``start_seconds``.
        """
        deadline = time.monotonic() + start_seconds
        while running := self._running():
            self.listen(1.0)
            late = [child.name for child in running if not (child.ready or child.ended)]
            if late and time.monotonic() > deadline:
                raise ProcessFailed(f"{', '.join(late)} not ready after {start_seconds:g} s")
        return [child.result for child in self._children.values()]

    def stop(self, *names: str) -> None:
        """Ask these processes to end. Their reports can still be listened to."""
        for name in names:
            self._children[name].send(_Signal.STOP)

    @property
    def running(self) -> dict[str, int]:
        """The processes that have not ended, by name, with their ids."""
        return {child.name: child.process.pid or 0 for child in self._running()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadline = time.monotonic() + (self._patience if error is None else _SECONDS_AFTER_ERROR)
        for child in self._children.values():
            child.channel.close()  # which tells it to end
        for child in self._children.values():
            child.end(max(0.0, deadline - time.monotonic()))
        self._children.clear()

    def _running(self) -> list[_Child]:
        return [child for child in self._children.values() if not child.ended]

    def _go_if_ready(self) -> None:
        children = self._children.values()
        if self.started_at is None and children and all(child.ready or child.ended for child in children):
            self.started_at = time.time()
            for child in children:
                child.send(_Signal.GO)


def _run(work: Work, arguments: Sequence[Any], channel: Connection) -> None:
    """Run the body of every process."""
    ignore_interrupts()
    try:
        channel.send((_Signal.DONE, work(Parent(channel), *arguments)))
    except Exception as error:
        reason = described(error)
        cause = sendable(error) if isinstance(error, ShardqError) else None
        with suppress(OSError):  # nobody listens any more
            channel.send((_Signal.FAILED, (reason, cause, traceback.format_exc())))
        sys.exit(1)


def _ending(process: SpawnProcess) -> str:
    code = process.exitcode or 0
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
