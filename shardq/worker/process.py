"""What runs in a process of a pool, and what the process is given to do."""

from __future__ import annotations

import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection

import msgspec

from shardq.callables import function_named
from shardq.client import Client, connect
from shardq.errors import ShardqError
from shardq.storage.per_process import generation
from shardq.worker.attempt import Handler
from shardq.worker.options import WorkerOptions
from shardq.worker.report import WorkerReport
from shardq.worker.signals import call_on, ignore_interrupts, own_group
from shardq.worker.worker import Worker

__all__ = [
    "REPORT_SECONDS",
    "Ended",
    "WorkerPlan",
    "load_handler",
    "reporting",
    "run_process",
    "sendable",
]

REPORT_SECONDS = 0.2


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a worker needs, in a form that can be sent to another process."""

    url: str
    handlers: dict[str, str | Handler]  # by queue
    options: WorkerOptions

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the worker receives from."""
        return tuple(self.handlers)

    def worker(self, client: Client) -> Worker:
        """The worker that the process runs."""
        handlers = {name: load_handler(handler) for name, handler in self.handlers.items()}
        options = msgspec.structs.asdict(self.options)
        return Worker([client.queue(name) for name in handlers], handlers, **options)


class Ended(msgspec.Struct, frozen=True):
    """The last report of a process, and why it ended early: an error, what crashed its handler, or a signal."""

    report: WorkerReport
    error: ShardqError | None = None
    crash: str = ""
    told: bool = False  # by SIGTERM


def run_process(plan: WorkerPlan, channel: Connection) -> None:
    """Work as planned; report on the channel a few times a second and at the end.

    SIGTERM is a clean stop. SIGINT is ignored: the parent gets the Ctrl-C of a terminal too, and tells this process.
    The process is a group of its own, with the commands that it starts, so that the parent can end them all.
    """
    own_group()
    ignore_interrupts()
    here = generation()
    worker: Worker | None = None
    error: ShardqError | None = None
    crash, told = "", False

    def stop() -> None:
        nonlocal told
        told = True
        if worker is not None:
            worker.stop()

    try:
        with connect(plan.url) as client:
            worker = plan.worker(client)
            call_on(signal.SIGTERM, stop)
            crash = _run(worker, channel)
    except ShardqError as raised:
        error = raised
    if generation() != here:  # a child that a handler has forked, and that came back here
        return
    report = WorkerReport() if worker is None else worker.report
    with suppress(OSError):  # the parent is gone
        channel.send(Ended(report, sendable(error), crash, told))


def load_handler(handler: str | Handler) -> Handler:
    """The handler itself, or the function that it names; raises InvalidSetting when there is none."""
    return function_named("handler", handler) if isinstance(handler, str) else handler


def _run(worker: Worker, channel: Connection) -> str:
    """Work until the end; returns why the worker crashed, or ""."""
    here = generation()
    try:
        with reporting(worker, channel):
            worker.run()
    except SystemExit as exit_:
        if generation() != here:  # of a child that a handler has forked
            raise
        return f"the worker ended with SystemExit({exit_.code!r})"
    return ""


@contextmanager
def reporting(worker: Worker, channel: Connection) -> Iterator[None]:
    """Report on a worker, from a thread, while the block runs.

    When the parent is gone the worker is told to stop, as nobody is left to do so. An error of the thread stops the
    worker too and is raised at the end of the block: a worker whose reports have ended must not go on unnoticed.
    """
    done = threading.Event()
    errors: list[Exception] = []

    def report() -> None:
        try:
            while not done.wait(REPORT_SECONDS):
                channel.send(worker.report)
        except OSError:  # the parent is gone
            worker.stop()
        except Exception as error:
            errors.append(error)
            worker.stop()

    reporter = threading.Thread(target=report, name="shardq-reporter", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()
    if errors:
        raise errors[0]


def sendable(error: ShardqError | None) -> ShardqError | None:
    """The error, or one of the same text where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ShardqError(str(error))
    return error
