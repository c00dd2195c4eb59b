"""What the processes of a pool do when one of them, or the one that started them, is killed; and on other signals."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import shardq
from shardq.worker import PoolReport, ShellCommand, WorkerPool

SHARDQ = Path(sys.executable).with_name("shardq")
HANGS = "exec 3>{pipe}; echo $PPID >&3; sleep 600; true"


class Pipe:
    """A pipe that processes under test have open, until all of them have ended."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path, self._end = path, os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._held = os.open(path, os.O_WRONLY)  # no end before one has opened it

    def line(self) -> str:
        """Wait for a line."""
        assert select.select([self._end], [], [], 60)[0]
        return os.read(self._end, 99).decode().strip()

    def ends(self) -> bool:
        """Wait until no process has it open any more."""
        os.close(self._held)
        return bool(select.select([self._end], [], [], 30)[0]) and not os.read(self._end, 9)

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path / "pipe")
    yield pipe
    pipe.close()


@contextmanager
def work(url: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A pool, which is ended at once after the block, with its commands."""
    command = [str(SHARDQ), "--url", url, "work", "jobs", *options]
    with subprocess.Popen(command, cwd=Path(__file__).parent, start_new_session=True) as parent:
        try:
            yield parent
        finally:
            parent.send_signal(signal.SIGQUIT)


@pytest.mark.long
def test_a_worker_whose_parent_is_killed_enforces_the_timeout_and_releases_its_messages(
    url: str, queue: shardq.Queue, pipe: Pipe
) -> None:
    queue.alter(visibility_timeout=600)
    queue.producer().send_many([str(pipe.path).encode()] * 3)
    with work(url, "--handler", "handlers_for_tests:hang", "--handler-timeout", "1s") as parent:
        assert pipe.line() == "begun"
        parent.kill()
    assert pipe.ends()
    consumer, deliveries = queue.consumer(), list[int]()
    while len(deliveries) < 3 and (batch := consumer.receive(3, wait=30)):
        deliveries += [message.deliveries for message in batch]
    assert sorted(deliveries) == [1, 1, 2]


@pytest.mark.parametrize("parent_too", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_command_of_a_killed_worker_is_killed(
    url: str, queue: shardq.Queue, pipe: Pipe, parent_too: bool
) -> None:
    queue.producer().send(b"x")
    with work(url, "--exec", HANGS.format(pipe=pipe.path)) as parent:
        worker = int(pipe.line())
        if parent_too:
            parent.kill()
            parent.wait()
        os.kill(worker, signal.SIGKILL)
        assert pipe.ends()


def test_what_the_handler_of_a_killed_worker_runs_is_killed(
    url: str, queue: shardq.Queue, pipe: Pipe, handlers: str
) -> None:
    queue.producer().send(f"exec 3>{pipe.path}; echo $PPID >&3; sleep 600; true".encode())
    with work(url, "--handler", f"{handlers}:run"):
        os.kill(int(pipe.line()), signal.SIGKILL)
        assert pipe.ends()


def test_a_command_goes_on_when_its_worker_ends_in_order(url: str, queue: shardq.Queue, pipe: Pipe) -> None:
    queue.producer().send(b"x")
    command = ShellCommand(f"(exec 3>{pipe.path}; sleep 2; echo done >&3) & sleep 0.3")
    assert WorkerPool(url, "jobs", command, idle_exit=0).run().total.worked == 1
    assert pipe.line() == "done"


@pytest.mark.parametrize(("number", "stops"), [(signal.SIGHUP, 1), (signal.SIGQUIT, 2)])
def test_sighup_ends_a_pool_as_sigterm_does_and_sigquit_at_once(
    url: str, queue: shardq.Queue, handlers: str, number: int, stops: int
) -> None:
    queue.producer().send_many([b"x"] * 100)

    def send(report: PoolReport) -> None:
        if report.total.worked and not sent:
            sent.append(True)
            os.kill(os.getpid(), number)

    sent: list[bool] = []
    report = WorkerPool(url, "jobs", f"{handlers}:slow", on_progress=send).run()
    assert (report.stops, report.restarts) == (stops, 0)
    assert (queue.counts().in_flight == 0) == (stops == 1)
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGUSR1, pytest.param(signal.SIGUSR2, marks=pytest.mark.long)])
def test_a_pool_has_its_processes_print_their_stacks(
    url: str, queue: shardq.Queue, handlers: str, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    queue.producer().send_many([b"x"] * 20)

    def send(report: PoolReport) -> None:
        if report.total.worked and not sent:
            sent.append(True)
            os.kill(os.getpid(), number)

    sent: list[bool] = []
    report = WorkerPool(url, "jobs", f"{handlers}:slow", on_progress=send, idle_exit=0.3).run()
    assert (report.total.worked, report.restarts) == (20, 0)
    assert "in slow" in capfd.readouterr().err


def test_a_program_that_handles_a_signal_itself_keeps_its_handler(
    url: str, queue: shardq.Queue, handlers: str
) -> None:
    queue.producer().send_many([b"x"] * 5)
    taken: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _: taken.append(number))
    try:
        pool = WorkerPool(
            url,
            "jobs",
            f"{handlers}:nothing",
            idle_exit=0,
            on_progress=lambda _: signal.raise_signal(signal.SIGHUP),
        )
        assert (pool.run().stops, bool(taken)) == (0, True)
    finally:
        signal.signal(signal.SIGHUP, before)
