"""Several processes that work on a queue, or on several, and are replaced when they die."""

from __future__ import annotations

import pickle
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Unpack

import msgspec

import shardq.base  # so that annotations can name packages that are loaded when they are used
from shardq.base.callables import check_runs, split_name
from shardq.base.log import Log
from shardq.base.texts import described, kind_of, masked, shown
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting, ShardqError
from shardq.storage.opening import check_between_processes
from shardq.worker.attempt import Handler
from shardq.worker.json_log import JsonLog
from shardq.worker.options import WorkerKeywords, WorkerOptions, assign
from shardq.worker.process import WorkerPlan
from shardq.worker.report import WorkerReport
from shardq.worker.scaling import COUNT_SECONDS, DueMessages, Processes, Scaling, bounds
from shardq.worker.signals import STACKS, call_unless_handled, stop_signals
from shardq.worker.slot import Child, Slot, WorkersFailing

if TYPE_CHECKING:
    import shardq.metrics

__all__ = ["PoolReport", "WorkerPool", "WorkersFailing"]

_log = Log(__name__)

TURN_SECONDS = 0.25  # the longest wait for reports


class PoolReport(msgspec.Struct, frozen=True):
    """The counters of a pool: the sum over its processes, including those that have ended.

    Those of a process that died may be 0.2 seconds old.
    """

    total: WorkerReport
    processes: int  # running now
    restarts: int  # processes that died and were replaced
    seconds: float  # since the start
    left_in_flight: int = 0  # messages held by processes that died: delivered again when their leases expire
    stops: int = 0  # how often it was asked to end


class WorkerPool:
    """Runs a :class:`~shardq.worker.Worker` in each of several processes, and replaces those that die.

    The handler is named, ``package.module:function``, or a callable that can be pickled. Each process receives from
    all queues, also those that a pattern such as ``mail/*`` matches. For several queues the handler may be a mapping
    of one for each. The options of the workers are :class:`~shardq.worker.WorkerOptions`. With ``idle_exit`` the pool
    ends when in every process nothing was due for that time; delayed messages do not count. ``on_progress`` is called
    with the report several times a second. With ``measured`` the processes measure what they do: see :meth:`measures`.

    Each process imports the main program again. So a program that runs a pool must do it below
    ``if __name__ == "__main__":``.

    With ``processes=(1, 8)`` there are 1 to 8 of them. Every 10 seconds the pool counts due messages, which asks each
    queue for its shards, and for the counts of each. When for 20 seconds more was due than all handle in 10, half as
    many are added, one at least. When for 60 seconds nothing was due and one of them held nothing, one is retired. It
    ends after the messages at hand, as by SIGTERM, and releases the messages that it has not begun.

    SIGTERM and SIGINT end the pool cleanly, after the messages at hand. A second one ends it at once, with the
    processes that handlers have started.

    SIGHUP is as SIGTERM, and SIGQUIT as a second one. On SIGUSR1 and SIGUSR2 each process prints the stacks of its
    threads on stderr. These four are left alone where the program handles or ignores them.

    When this process is killed, its processes end after the messages at hand: within ``handler_timeout`` seconds, or 60
    without one. A handler that still runs then is killed, and its message released.

    A process that has held messages for ``handler_timeout`` seconds without finishing one is killed and replaced. So
    is one that has sent no report for 5 seconds more, because it is stopped or its handler lets no other thread run. A
    process that dies, or ends on a SIGTERM from outside, is replaced after a pause that doubles up to 30 seconds.
    After more than ``max_restarts`` consecutive ends of a process without one settled message, the pool ends with
    WorkersFailing. Ends while the store is unreachable do not count: the pool waits for it. Otherwise it ends only when
    it is asked to, or by ``idle_exit``: a handler that raises SystemExit fails, and its process continues. A process
    that has become another program, or whose end is held up by threads or processes of a handler, is killed 65 seconds
    later, or 5 seconds after a longer ``handler_timeout``.

    With a :class:`~shardq.worker.JsonLog` the processes log lines of JSON on stderr, also what came of each message.

    >>> WorkerPool(url, "orders", "shop.orders:charge", processes=4, idle_exit=5).run()  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        queue: str | Sequence[str],
        handler: str | Handler | Mapping[str, str | Handler],
        *,
        processes: Processes = 1,
        handler_timeout: float | None = None,
        max_restarts: int = 10,
        on_progress: Callable[[PoolReport], None] = lambda _: None,
        measured: bool = False,
        log: JsonLog | None = None,
        **options: Unpack[WorkerKeywords],
    ) -> None:
        chosen = WorkerOptions(**options)
        handlers: dict[str, str | Handler] = assign(
            [queue] if isinstance(queue, str) else queue, handler, chosen
        )
        for each in handlers.values():
            if isinstance(each, str):
                split_name("handler", each)
            else:
                check_runs("handler", each, awaits=True)
        self._begin(
            WorkerPlan(url=url, handlers=handlers, options=chosen, log=log),
            processes=processes,
            handler_timeout=handler_timeout,
            max_restarts=max_restarts,
            on_progress=on_progress,
            measured=measured,
        )

    def _begin(
        self,
        plan: WorkerPlan,
        *,
        processes: Processes,
        handler_timeout: float | None,
        max_restarts: int,
        on_progress: Callable[[PoolReport], None],
        measured: bool = False,
    ) -> None:
        """Take the plan of each process, and how many there are. Nothing runs yet."""
        least, most = bounds(processes)
        check_number("max_restarts", max_restarts, 0, 1_000_000, whole=True)
        check_runs("on_progress", on_progress)
        if handler_timeout is not None:
            check_number("handler_timeout", handler_timeout, 1.0, 7 * 86_400.0)
        if plan.log is not None and not isinstance(plan.log, JsonLog):
            raise InvalidSetting(
                f"log={shown(plan.log)} is {kind_of(plan.log)}: give a shardq.worker.JsonLog(), or None"
            )
        plan = msgspec.structs.replace(plan, handler_timeout=handler_timeout, measured=measured)
        check_between_processes(plan.url, "the workers of a pool are processes of their own")
        _check_sendable(plan)
        self._slots = [
            Slot(plan, f"shardq-worker-{number}", max_restarts, retired=number >= least)
            for number in range(most)
        ]
        self._plan, self._scaling = plan, Scaling(least, most)
        self._due: DueMessages | None = None
        self._handler_timeout, self._on_progress = handler_timeout, on_progress
        self._started_at = time.monotonic()
        self._stops = 0
        self._error: ShardqError | None = None

    @property
    def report(self) -> PoolReport:
        """The counters of the pool so far."""
        return PoolReport(
            total=sum((slot.report for slot in self._slots), WorkerReport()),
            processes=sum(slot.running for slot in self._slots),
            restarts=sum(slot.restarts for slot in self._slots),
            seconds=time.monotonic() - self._started_at,
            left_in_flight=sum(slot.left_in_flight for slot in self._slots),
            stops=self._stops,
        )

    @property
    def description(self) -> str:
        """Describe the work of the pool: its queues, the store without its login, and the number of processes."""
        least, most = self._scaling.least, self._scaling.most
        processes = f"{most}" if least == most else f"{least} to {most}"
        threads = self._plan.options.threads
        return (
            f"{self._plan.work} at {masked(self._plan.url)} with {processes} {'process' if most == 1 else 'processes'}"
            + (f" of {threads} threads" if threads > 1 else "")
        )

    def measures(self) -> shardq.metrics.Measures:
        """Return what the processes have measured, with those that have ended; nothing unless it is ``measured``.

        A process that is killed has sent what it had measured up to a second before. For any thread.
        """
        from shardq.metrics.measures import Measures  # noqa: PLC0415 - loaded where it is asked for

        return sum((each for slot in self._slots if (each := slot.measures)), Measures())

    def run(self) -> PoolReport:
        """Work until stopped, or until all processes are idle.

        Raises WorkersFailing, or the error that a process ended with, such as QueueNotFound, or InvalidSetting for a
        handler that cannot be loaded.
        """
        self._started_at = time.monotonic()
        with ExitStack() as stack:
            stack.enter_context(stop_signals(self.stop))
            stack.enter_context(call_unless_handled(self._signals()))
            stack.callback(self._end)
            if self._scaling.least < self._scaling.most:
                self._due = DueMessages(self._plan.url, self._plan.queues, COUNT_SECONDS)
                self._due.start()
                stack.callback(self._due.close)
            while not self._turn():
                self._on_progress(self.report)
        self._on_progress(self.report)
        if self._error is not None:
            raise self._error
        return self.report

    def stop(self) -> None:
        """End cleanly, after the messages at hand. A second call ends the pool at once.

        For signal handlers and other threads.
        """
        self._stops += 1

    def _signals(self) -> dict[int, Callable[[], None]]:
        """Return the actions of the pool on further signals than SIGTERM and SIGINT."""
        stops: dict[int, Callable[[], None]] = {signal.SIGHUP: self.stop, signal.SIGQUIT: self._stop_at_once}
        return stops | {number: partial(self._pass_on, number) for number in STACKS}

    def _stop_at_once(self) -> None:
        self._stops += 2

    def _pass_on(self, number: int) -> None:
        for slot in self._slots:
            slot.signal(number)

    def _turn(self) -> bool:
        """Supervise the processes once; True when all is done."""
        self._pass_on_stops()
        self._scale()
        for slot in self._slots:
            slot.start_if_due()
        _listen([slot.child for slot in self._slots if slot.child is not None])
        self._pass_on_stops()  # before their ends are judged: a service manager tells all processes at once
        for slot in self._slots:
            self._supervise(slot)
        return all(slot.at_rest for slot in self._slots)

    def _scale(self) -> None:
        """Take up slots, or retire one, when due messages were counted."""
        due = None if self._due is None or self._stops or self._error else self._due.take()
        if due is None:
            return
        active = [slot for slot in self._slots if not (slot.retired or slot.finished)]
        idle = [slot for slot in active if slot.idle]
        handled = self.report.total.handled
        wanted = self._scaling.decide(
            time.monotonic(), due=due, handled=handled, processes=len(active), idle=len(idle)
        )
        for slot in idle[: max(0, len(active) - wanted)]:
            slot.retire()
        resting = [slot for slot in self._slots if slot.at_rest and not slot.finished]
        for slot in resting[: max(0, wanted - len(active))]:
            slot.take_up()
        if wanted != len(active):
            _log.info("%d messages are due: from %d processes to %d", due, len(active), wanted)

    def _pass_on_stops(self) -> None:
        if self._stops == 0 and self._error is None:
            return
        for slot in self._slots:
            slot.stop(at_once=self._stops > 1)

    def _supervise(self, slot: Slot) -> None:
        try:
            slot.supervise(self._handler_timeout)
        except ShardqError as error:
            self._error = self._error or error

    def _end(self) -> None:
        """Leave no process behind, also after an error."""
        for slot in self._slots:
            slot.kill()


def _check_sendable(plan: WorkerPlan) -> None:
    try:
        pickle.dumps(plan)
    except Exception as error:
        raise InvalidSetting(
            f"the handler, the codec or on_error cannot be sent to other processes ({described(error)}): "
            "name functions, as 'package.module:function', and the codec, as 'json', or define them at the top of a "
            "module"
        ) from error


def _listen(children: Iterable[Child]) -> None:
    channels = [child.channel for child in children if child.ended is None]
    if channels:
        wait(channels, TURN_SECONDS)
    else:
        time.sleep(0.02)
