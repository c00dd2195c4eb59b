"""The work in a process of a pool, and the plan that the process is given."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import msgspec

from shardq.base.callables import function_named
from shardq.base.log import Log
from shardq.base.texts import text_of
from shardq.client import Client, connect
from shardq.errors import ShardqError
from shardq.storage.opening import HasUrl
from shardq.storage.per_process import forks
from shardq.worker.attempt import Handler
from shardq.worker.consuming import WorkerLoop, opened
from shardq.worker.json_log import JsonLog
from shardq.worker.options import WorkerOptions
from shardq.worker.report import WorkerReport
from shardq.worker.shell_command import ShellCommand
from shardq.worker.signals import (
    call_on,
    call_unless_handled,
    end_group,
    guarded_group,
    ignore_interrupts,
    own_group,
    print_stacks,
)
from shardq.worker.worker import Worker

if TYPE_CHECKING:
    from shardq.metrics.recorder import Metrics

__all__ = [
    "ORPHAN_SECONDS",
    "REPORT_SECONDS",
    "Ended",
    "WorkerPlan",
    "reporting",
    "run_process",
    "sendable",
]

_log = Log(__name__)

REPORT_SECONDS = 0.2
MEASURED_EVERY = 5  # reports: what was measured is larger
ORPHAN_SECONDS = 60.0  # for a handler without a timeout, once the parent was killed


class WorkerPlan(HasUrl, frozen=True, kw_only=True):
    """Everything that a worker needs, in a form that can be sent to another process."""

    url: str
    handlers: dict[str, str | Handler]  # by queue
    options: WorkerOptions
    handler_timeout: float | None = None
    measured: bool = False  # it sends its measures with its reports
    log: JsonLog | None = None

    @property
    def work(self) -> str:
        """Describe the work in words."""
        return ", ".join(self.handlers)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the worker receives from."""
        return tuple(self.handlers)

    def load(self) -> None:
        """Import what the worker runs: a module may set up logging, and what hooks clients have, before one opens."""
        for handler in self.handlers.values():
            load_handler(handler)

    def worker(self, client: Client) -> WorkerLoop:
        """Make the worker that the process runs."""
        handlers = {name: load_handler(handler) for name, handler in self.handlers.items()}
        options = msgspec.structs.asdict(self.options)
        return Worker([opened(client, name) for name in handlers], handlers, **options)


class Ended(msgspec.Struct, frozen=True):
    """The last report of a process, and why it ended early: an error, the crash of its handler, or a signal."""

    report: WorkerReport
    error: ShardqError | None = None
    crash: str = ""
    terminated: bool = False  # by SIGTERM


def run_process(plan: WorkerPlan, channel: Connection) -> None:
    """Work as planned; report on the channel a few times a second and at the end.

    SIGTERM and SIGHUP are a clean stop. SIGINT is ignored: the parent gets the Ctrl-C of a terminal too, and ends this
    process. The process has its own group, with the commands that it starts, so that the parent can end them all.
    """
    os.set_inheritable(channel.fileno(), False)  # else a program that a handler becomes keeps it open
    own_group()
    ignore_interrupts()
    print_stacks()
    here = forks.count
    worker: WorkerLoop | None = None
    metrics: Metrics | None = None
    error: ShardqError | None = None
    crash, terminated = "", False

    def stop() -> None:
        nonlocal terminated
        terminated = True
        if worker is not None:
            worker.stop()

    try:
        if plan.log is not None:
            plan.log.begin()
        hooks = None if plan.log is None else plan.log.hooks
        plan.load()
        metrics = _metrics() if plan.measured else None
        with connect(plan.url, hooks=hooks, observer=metrics) as client, ExitStack() as stack:
            worker = plan.worker(client)
            call_on(signal.SIGTERM, stop)
            stack.enter_context(call_unless_handled({signal.SIGHUP: stop}))
            if any(isinstance(handler, ShellCommand) for handler in plan.handlers.values()):
                stack.enter_context(guarded_group())
            crash = _run(plan, worker, channel, metrics)
    except ShardqError as raised:
        error = raised
    except BaseException:
        channel.close()  # tells the parent, as threads of a handler may hold up the end of this process
        raise
    if forks.count != here:  # a child that a handler has forked, and that came back here
        return
    report = WorkerReport() if worker is None else worker.report
    with suppress(OSError), channel:  # the parent is gone
        if metrics is not None:
            channel.send(metrics.measures())
        channel.send(Ended(report, sendable(error), crash, terminated))


def _metrics() -> Metrics:
    from shardq.metrics.recorder import Metrics  # noqa: PLC0415 - loaded where it is asked for

    return Metrics()


def load_handler(handler: str | Handler) -> Handler:
    """Load the handler, or the function that it names; raises InvalidSetting when there is none."""
    return function_named("handler", handler) if isinstance(handler, str) else handler


def _run(plan: WorkerPlan, worker: WorkerLoop, channel: Connection, metrics: Metrics | None) -> str:
    """Work until the end; returns why the worker crashed, or ""."""
    here = forks.count
    try:
        with reporting(worker, channel, plan.handler_timeout or ORPHAN_SECONDS, metrics):
            worker.run()
    except SystemExit as exit_:
        if forks.count != here:  # of a child that a handler has forked
            raise
        return f"the worker ended with SystemExit({exit_.code!r})"
    return ""


@contextmanager
def reporting(
    worker: WorkerLoop, channel: Connection, patience: float = ORPHAN_SECONDS, metrics: Metrics | None = None
) -> Iterator[None]:
    """Report on a worker, and what it has measured, from a thread, while the block runs.

    When the parent is gone the worker is stopped here, as no other process does so. If its handler has not ended after
    ``patience`` seconds, it releases its messages, and its process group is killed. An error of the thread stops the
    worker too and is raised at the end of the block. A worker whose reports have ended must not continue unnoticed.
    """
    done, sending, here = threading.Event(), threading.Lock(), forks.count
    errors: list[Exception] = []

    def send(value: object) -> None:
        with sending:
            channel.send(value)

    def send_report() -> None:
        with suppress(OSError):  # the parent is gone, which the thread notices
            if forks.count == here:
                send(worker.report)

    worker.on_settled = send_report  # at once, as the next message may kill the process
    send_report()  # from now on silence means that it hangs

    def report() -> None:
        try:
            for turn in count():
                if done.wait(REPORT_SECONDS):
                    break
                send(worker.report)
                if metrics is not None and turn % MEASURED_EVERY == 0:
                    send(metrics.measures())
        except OSError:  # the parent is gone
            worker.stop()
            if not done.wait(patience):
                _leave(worker, patience)
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


def _leave(worker: WorkerLoop, patience: float) -> None:
    """End this process, and those that it has started, although a handler runs."""
    _log.error(
        "the parent of this process was killed, and the handler has not ended within %g seconds: "
        "its message is released, and this process ends",
        patience,
    )
    worker.abandon()
    end_group(os.getpid())


def sendable(error: ShardqError | None) -> ShardqError | None:
    """Return the error, or one of the same text where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ShardqError("" if error is None else text_of(error))
    return error
