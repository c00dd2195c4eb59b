"""The loop that works a queue off."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import cast

from shardq.callables import check_runs
from shardq.codec import BYTES, Codec
from shardq.consumer import Consumer
from shardq.errors import ShardqError
from shardq.queue import Queue
from shardq.settings import check_number
from shardq.worker.attempt import Attempt, BatchHandler, EachMessage, MessageHandler, Trial, WholeBatch
from shardq.worker.backoff import Backoff
from shardq.worker.report import Tally, WorkerReport
from shardq.worker.settling import Settling

__all__ = ["Worker"]

_log = logging.getLogger(__name__)

MAX_BATCH = 100_000
MAX_IDLE_SECONDS = 7 * 86_400.0
PAUSE_SLICE_SECONDS = 0.1  # a stop is noticed within


class Worker:
    """Receives messages and calls a handler with each, until it is told to stop.

    A message whose handler returns is acked, all of a batch at once; one whose handler raises an
    ``Exception`` comes back after ``retry_delay`` seconds, doubled by every delivery up to
    ``max_retry_delay``, and after the queue's ``max_deliveries`` it goes to the dead-letter queue with the
    exception as its reason. Delivery is at least once: a handler should be harmless when it is run twice.
    With ``by_batch`` the handler takes the whole :class:`~shardq.Batch` and may settle parts of it itself.
    Async and generator functions are refused with InvalidSetting: calling them runs nothing.

    It also ends when the queue has been empty for ``idle_exit`` seconds. Leases are kept while the handler
    runs, unless ``keep_leases`` is False. A store that is away is waited for.

    >>> queue = shardq.connect(url).create_queue("letters")
    >>> ids = queue.producer().send_many([b"dear", b"sir"])
    >>> Worker(queue, lambda message: print(message.body), idle_exit=0).run().worked
    b'dear'
    b'sir'
    2
    """

    def __init__(
        self,
        queue: Queue,
        handler: MessageHandler | BatchHandler,
        *,
        by_batch: bool = False,
        batch: int = 100,
        codec: Codec = BYTES,
        retry_delay: float = 1.0,
        max_retry_delay: float = 300.0,
        keep_leases: bool = True,
        idle_exit: float | None = None,
        prefetch: int = 0,
    ) -> None:
        check_runs("handler", handler)
        check_number("batch", batch, 1, MAX_BATCH, whole=True)
        if idle_exit is not None:
            check_number("idle_exit", idle_exit, 0.0, MAX_IDLE_SECONDS)
        self._queue, self._batch, self._idle_exit = queue, batch, idle_exit
        self._codec, self._keep_leases, self._prefetch = codec, keep_leases, prefetch
        self._trial = _trial(handler, by_batch=by_batch)
        self._backoff = Backoff(retry_delay, max_retry_delay)
        self._tally = Tally()
        self._stopping = False
        self._consumer: Consumer | None = None

    @property
    def report(self) -> WorkerReport:
        """What the worker has done so far; for any thread."""
        return self._tally.read()

    def run(self) -> WorkerReport:
        """Work until :meth:`stop`, or until the queue has been empty for ``idle_exit`` seconds.

        Raises what cannot pass by itself, such as QueueNotFound. A KeyboardInterrupt or SystemExit goes on
        its way after the batch at hand has been settled: what is done is acked, the rest given back.
        """
        absences = 0
        while not self._stopping:
            batches = self.report.batches
            try:
                self._consume()
                break
            except ShardqError as error:
                absences = 1 if self.report.batches > batches else absences + 1
                self._wait_for_store(error, absences)
        return self.report

    def stop(self) -> None:
        """End after the message at hand and give back the others: for signal handlers and other threads."""
        self._stopping = True
        if self._consumer is not None:
            self._consumer.stop()

    def _consume(self) -> None:
        with self._queue.consumer(
            codec=self._codec, keep_leases=self._keep_leases, prefetch=self._prefetch
        ) as consumer:
            self._consumer = consumer
            if self._stopping:  # told so before there was a consumer to tell
                return
            for batch in consumer.batches(self._batch, wait=self._idle_exit):
                self._tally.add(batches=1)
                self._tally.hold(len(batch))
                try:
                    self._work(Attempt(batch))
                finally:
                    self._tally.hold(0)

    def _work(self, attempt: Attempt) -> None:
        try:
            self._trial.run(attempt, self._tally, self._is_stopping)
        finally:
            for step in Settling(self._queue, attempt, self._backoff, self._tally).steps():
                self._persist(step)

    def _persist(self, step: Callable[[], None]) -> None:
        """Settle, however long the store is away: the lease keeper holds the messages meanwhile.

        Once stopping, try it once.
        """
        attempt = 0
        while True:
            try:
                return step()
            except ShardqError as error:
                if not error.retryable:
                    raise
                if self._stopping:
                    _log.warning(
                        "messages were not settled and come back when their lease is over: %s", error
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

    def _is_stopping(self) -> bool:
        return self._stopping


def _trial(handler: MessageHandler | BatchHandler, *, by_batch: bool) -> Trial:
    if by_batch:
        return WholeBatch(cast("BatchHandler", handler))
    return EachMessage(cast("MessageHandler", handler))
