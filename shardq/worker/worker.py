"""The loop that receives messages and calls a handler with them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Literal, Unpack, cast, overload

from shardq.base.callables import check_runs
from shardq.base.texts import shown
from shardq.batch import Batch
from shardq.consumer import Consumer
from shardq.errors import InvalidSetting, QueueNotFound, ShardqError
from shardq.message import Message
from shardq.outcome import Backoff
from shardq.queue import Queue
from shardq.queue_internals import at_last_delivery, consumer_of, observer_of, unless
from shardq.semaphore import Semaphore
from shardq.storage.per_process import forks
from shardq.worker.attempt import (
    Attempt,
    BatchHandler,
    EachMessage,
    Handler,
    HandlerCalls,
    MessageHandler,
    WholeBatch,
)
from shardq.worker.gate import Caution, open_gate, permit_gate, present_gate, set_apart
from shardq.worker.options import SharedKeywords, WorkerKeywords, WorkerOptions, assign
from shardq.worker.policy import ErrorFunction, error_policy
from shardq.worker.report import Tally, WorkerReport, enable_loggers
from shardq.worker.settling import AttemptSettling

__all__ = ["Worker"]

_log = logging.getLogger(__name__)

PAUSE_SLICE_SECONDS = 0.1  # a stop is noticed within this time
ABANDONED_SECONDS = 1.0  # until a message is delivered again whose handler is killed: it has ended by then
LEAVE_SECONDS = 5.0  # for what is to be settled after a stop, and for leaving; leases end by themselves


class Worker:
    """Receives messages and calls a handler with each, until it is told to stop.

    When the handler returns, its message is acked; a batch is acked with one call. When the handler raises, its message
    is delivered again after ``retry_delay`` seconds, which double with each delivery up to ``max_retry_delay``. After
    the queue's ``max_deliveries`` the message goes to the dead-letter queue with the exception as its reason. Each
    failure is logged with its traceback. SystemExit and ``asyncio.CancelledError`` are failures too; KeyboardInterrupt
    ends the worker. Delivery is at least once: a handler can run twice for the same message, and must allow for that.

    Before its last delivery a message is held alone, so that it is no dead letter because another one has killed the
    process. The rest of its batch is released uncounted.

    A handler can raise or return what else is to become of its message: an :class:`~shardq.Outcome`. The option
    ``on_error`` gives outcomes to errors.

    Anything else that the handler of a message returns is its result: the message is acked with it if its queue has
    ``keep_results``, as :meth:`shardq.Message.ack` does. One that cannot be kept is logged.

    With ``by_batch`` the handler takes the whole :class:`~shardq.Batch` and may settle parts of it itself.
    Async and generator functions are refused with InvalidSetting: calling them runs nothing.

    The worker ends when it is told to stop, or when nothing was due for ``idle_exit`` seconds. While the
    store is unavailable it waits and tries again. All options: :class:`~shardq.worker.WorkerOptions`.

    A worker may have several queues of one client, with one handler or a mapping of a handler for each name. They take
    turns by ``weights`` or ``order``, each has its own settings, and ``idle_exit`` means that all are empty. One that
    is deleted or cannot be read is left out, and the others go on; the error is raised when the worker would end.

    >>> queue = shardq.connect(url).create_queue("letters")
    >>> ids = queue.producer().send_many([b"dear", b"sir"])
    >>> Worker(queue, lambda message: print(message.body), idle_exit=0).run().worked
    b'dear'
    b'sir'
    2
    """

    @overload
    def __init__(
        self,
        queue: Queue | Sequence[Queue],
        handler: MessageHandler | Mapping[str, MessageHandler],
        *,
        by_batch: Literal[False] = False,
        **options: Unpack[SharedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        queue: Queue | Sequence[Queue],
        handler: BatchHandler | Mapping[str, BatchHandler],
        *,
        by_batch: Literal[True],
        **options: Unpack[SharedKeywords],
    ) -> None: ...
    def __init__(
        self,
        queue: Queue | Sequence[Queue],
        handler: Handler | Mapping[str, Handler],
        **options: Unpack[WorkerKeywords],
    ) -> None:
        queues = _check_opened([queue] if isinstance(queue, Queue) else queue)
        self._options = WorkerOptions(**options)
        handlers: dict[str, Handler] = assign([each.name for each in queues], handler, self._options)
        for each in handlers.values():
            check_runs("handler", each)
        policy = error_policy(self._options.on_error)
        self._queues = {each.name: each for each in queues}
        self._calls = {
            name: _calls(each, policy, by_batch=self._options.by_batch) for name, each in handlers.items()
        }
        self._tally = Tally(observer_of(queues[0]))
        self._stopping = False
        self._open = set[Attempt]()  # with messages that are not settled
        self._runs_in = forks.count
        self._leave_by = math.inf
        self._semaphore: Semaphore | None = None
        self._gate = open_gate(self._is_stopping)
        self._consumer: Consumer | None = None

    @property
    def report(self) -> WorkerReport:
        """What the worker has done so far. Any thread may read it."""
        return self._tally.read()

    def run(self) -> WorkerReport:
        """Work until :meth:`stop`, or until nothing was due for ``idle_exit`` seconds.

        Raises an error that waiting cannot fix, such as QueueNotFound. A KeyboardInterrupt is raised
        after the batch at hand is settled: what is done is acked, the rest is given back.
        """
        self._runs_in = forks.count
        faults = 0  # of the store, in a row
        while not self._stopping:
            enable_loggers(_log)
            batches = self.report.batches
            try:
                self._consume()
                break
            except ShardqError as error:
                faults = 1 if self.report.batches > batches else faults + 1
                self._wait_for_store(error, faults)
        return self.report

    def stop(self) -> None:
        """End after the message at hand and give back the others. For signal handlers and other threads.

        Where the store is away, the worker tries for 5 seconds. What is not settled then is delivered again when its
        lease is over.
        """
        self._stopping = True
        if self._consumer is not None:
            self._consumer.stop()

    def abandon(self) -> None:
        """Release what is held while a handler runs that does not end: this process is about to be killed.

        For another thread, after :meth:`stop`. What is worked is acked, what is not begun is released uncounted. What
        the handler works on is delivered again a second later. Gives up after 5 seconds.
        """
        self._leave_by = math.inf
        for attempt in list(self._open):
            with suppress(ShardqError):  # its lease ends with this process
                if running := attempt.running:
                    self._persist(partial(attempt.batch.part(running).release, delay=ABANDONED_SECONDS))
                self._settle_beside(attempt)

    def _settle_beside(self, attempt: Attempt) -> None:
        """Settle what no handler works on."""
        self._settle_all(self._queues[attempt.batch[0].queue], attempt, self._tally)

    def _consume(self) -> None:
        self._open_gate()
        self._tell_of_pauses()
        consumer = self._consumer = self._make_consumer()
        try:
            if self._stopping:  # before there was a consumer
                return
            for batch in self._batches(consumer):
                self._tally.add(batches=1)
                self._tally.hold(len(batch))
                enable_loggers(_log)
                attempt = Attempt(batch)
                self._open.add(attempt)
                try:
                    self._work(attempt)
                finally:
                    self._open.remove(attempt)
                    self._tally.hold(0)
        finally:
            with self._leaving():
                consumer.close()

    def _batches(self, consumer: Consumer) -> Iterator[Batch]:
        """Receive batch after batch. A message at its last delivery is a batch of its own: see `set_apart`."""
        options, caution = self._options, Caution(len(self._queues) + 2)
        while not self._stopping:
            most = caution.most
            for batch in consumer.batches(most or options.batch, wait=options.idle_exit):
                last = self._at_last_delivery(batch)
                caution.limit(None if last is None else 1)
                kept, rest = set_apart(batch, last)
                if rest is not None:
                    self._give_back(rest)
                yield kept
                if caution.most != most:
                    break
            else:
                return

    def _at_last_delivery(self, batch: Batch) -> Message | None:
        with suppress(ShardqError):
            return at_last_delivery(batch)
        found: list[Message | None] = []  # its settings have to be read again
        self._persist(lambda: found.append(at_last_delivery(batch)))
        return found[0] if found else None

    def _give_back(self, rest: Batch) -> None:
        """Release messages that are not begun, uncounted. The report leaves them out: they are received again."""
        assert rest.queue is not None
        self._settle_all(self._queues[rest.queue], Attempt(rest), Tally())

    def _open_gate(self) -> None:
        name = self._options.semaphore
        if name is not None and self._semaphore is None:
            self._semaphore = next(iter(self._queues.values())).semaphore(name)
            self._gate = permit_gate(
                self._semaphore, self._is_stopping, lambda: self._tally.add(permit_waits=1)
            )

    def _make_consumer(self) -> Consumer:
        options, (first, *others) = self._options, self._queues.values()
        if not others:
            return first.consumer(
                codec=options.body_codec, keep_leases=options.keep_leases, prefetch=options.prefetch
            )
        return consumer_of(
            (first, *others),
            weights=options.weights,
            order=options.order,
            codec=options.body_codec,
            keep_leases=options.keep_leases,
            prefetch=options.prefetch,
        )

    def _tell_of_pauses(self) -> None:
        for name, queue in self._queues.items():
            try:
                if queue.settings.delivery_paused:
                    _log.warning("queue %s is paused: waiting for `shardq resume %s`", name, name)
            except QueueNotFound:
                if len(self._queues) == 1:
                    raise  # one of several is left out by the consumer

    def _work(self, attempt: Attempt) -> None:
        queue = self._queues[attempt.batch[0].queue]
        try:
            self._calls[queue.name].run(attempt, self._tally, present_gate(self._gate, queue))
        finally:
            if not self._is_forked:  # there the messages are the parent's
                self._settle_attempt(queue, attempt)

    def _settle_attempt(self, queue: Queue, attempt: Attempt) -> None:
        self._tally.hold(len(attempt.batch), settling=len(attempt.batch))
        self._settle_all(queue, attempt, self._tally)

    def _settle_all(self, queue: Queue, attempt: Attempt, tally: Tally) -> None:
        for step in AttemptSettling(queue, attempt, self._options, tally).steps():
            self._persist(step)

    def _persist(self, step: Callable[[], None]) -> None:
        """Repeat a step of settling until it succeeds; the lease keeper holds the messages meanwhile.

        A worker that is told to stop repeats it once more.
        """
        attempt = 0
        while True:
            try:
                with self._leaving():
                    return step()
            except ShardqError as error:
                if isinstance(error, QueueNotFound) and len(self._queues) > 1:
                    _log.warning("messages were not settled: %s", error)
                    return None
                if not error.retryable:
                    raise
                if self._stopping:
                    _log.warning(
                        "messages were not settled: they are delivered again when their leases expire: %s",
                        error,
                    )
                    return None
                attempt += 1
                self._wait_for_store(error, attempt)

    def _wait_for_store(self, error: ShardqError, attempt: int) -> None:
        if not error.retryable:
            raise error
        self._tally.add(store_faults=1)
        pause = Backoff(1.0, 30.0).delay(attempt)
        _log.warning("trying again in %.1f seconds: %s", pause, error)
        until = time.monotonic() + pause
        while not self._stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, PAUSE_SLICE_SECONDS))

    def _leaving(self) -> AbstractContextManager[None]:
        """Within it, a worker that is told to stop asks the store nothing more when its seconds for that are over."""
        return unless(next(iter(self._queues.values())), self._has_left)

    def _has_left(self) -> bool:
        if self._stopping and self._leave_by == math.inf:
            self._leave_by = time.monotonic() + LEAVE_SECONDS
        return time.monotonic() > self._leave_by

    def _is_stopping(self) -> bool:
        return self._stopping or self._is_forked

    @property
    def _is_forked(self) -> bool:
        """True in a child that a handler has forked, and that came back here: it is no worker."""
        return forks.count != self._runs_in


def _calls(handler: MessageHandler | BatchHandler, policy: ErrorFunction, *, by_batch: bool) -> HandlerCalls:
    if by_batch:
        return WholeBatch(cast("BatchHandler", handler), policy)
    return EachMessage(cast("MessageHandler", handler), policy)


def _check_opened(queues: Sequence[Queue]) -> list[Queue]:
    if (
        isinstance(queues, str)
        or not isinstance(queues, Iterable)
        or not all(isinstance(queue, Queue) for queue in queues)
    ):
        raise InvalidSetting(
            f"queues={shown(queues)}: a worker takes opened queues, such as client.queue('orders')"
        )
    return list(queues)
