"""What runs in a process of a pool."""

from __future__ import annotations

import pickle
import signal
import threading
from multiprocessing.connection import Connection

import msgspec

from shardq.client import connect
from shardq.errors import ShardqError
from shardq.worker.plan import WorkerPlan
from shardq.worker.report import WorkerReport
from shardq.worker.signals import ignore_interrupts, own_group
from shardq.worker.worker import Worker

__all__ = ["REPORT_SECONDS", "Ended", "run_process"]

REPORT_SECONDS = 0.2


class Ended(msgspec.Struct, frozen=True):
    """The last word of a process: what it has done, and the error that it ended with."""

    report: WorkerReport
    error: ShardqError | None = None


def run_process(plan: WorkerPlan, channel: Connection) -> None:
    """Work as planned; report on the channel a few times a second and at the end.

    SIGTERM is a clean stop. SIGINT is left to the parent, which gets the Ctrl-C of a terminal. With the commands that
    it starts the process is a group of its own, so that the parent can end them all.
    """
    own_group()
    ignore_interrupts()
    report, error = WorkerReport(), None
    try:
        with connect(plan.url) as client:
            worker = plan.worker(client.queue(plan.queue))
            signal.signal(signal.SIGTERM, lambda _number, _frame: worker.stop())
            report = _run(worker, channel)
    except ShardqError as raised:
        error = raised
    channel.send(Ended(report, _sendable(error)))


def _run(worker: Worker, channel: Connection) -> WorkerReport:
    done = threading.Event()
    reporter = threading.Thread(
        target=_report, args=(worker, channel, done), name="shardq-reporter", daemon=True
    )
    reporter.start()
    try:
        worker.run()
    except SystemExit:  # the handler wants its process to end
        pass
    finally:
        done.set()
        reporter.join()
    return worker.report


def _report(worker: Worker, channel: Connection, done: threading.Event) -> None:
    while not done.wait(REPORT_SECONDS):
        try:
            channel.send(worker.report)
        except OSError:  # the parent is gone: nobody is left to tell this process to stop
            worker.stop()
            return


def _sendable(error: ShardqError | None) -> ShardqError | None:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ShardqError(str(error))
    return error
