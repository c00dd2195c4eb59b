"""The loop that receives messages and calls a handler with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, Unpack, overload

from shardq.base.callables import check_runs, is_async
from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.client.patterns import QueuePattern
from shardq.client.queue import Queue
from shardq.client.queue_internals import hooks_of
from shardq.core.hooks import Hooks
from shardq.core.message import Message
from shardq.errors import ShardqError
from shardq.worker.attempt import (
    Attempt,
    BatchHandler,
    EachMessage,
    Handler,
    HandlerCalls,
    MessageHandler,
    WholeBatch,
)
from shardq.worker.consuming import ByQueue
from shardq.worker.gate import HoldLimit, existing_queue_gate, set_apart
from shardq.worker.observed import observed_handler
from shardq.worker.options import SharedKeywords, WorkerKeywords, WorkerOptions, assign, check_opened
from shardq.worker.policy import ErrorFunction, error_policy
from shardq.worker.threaded import ThreadedLoop
from shardq.worker.threads import Unit, units_of

__all__ = ["Worker"]


class Worker(ThreadedLoop[Unit]):
    """Receives messages and calls a handler with each, until it is stopped.

    When the handler returns, its message is acked; a batch is acked with one call. When the handler raises, its message
    is delivered again after ``retry_delay`` seconds, which double with each delivery up to ``max_retry_delay``. After
    the queue's ``max_deliveries`` the message goes to the dead-letter queue with the exception as its reason. Each
    failure is logged with its traceback. SystemExit and ``asyncio.CancelledError`` are failures too; KeyboardInterrupt
    ends the worker. Delivery is at least once: a handler can run twice for the same message, and must allow for that.

    Before its last delivery a message is held alone, so that it is not a dead letter because another one has killed the
    process. The rest of its batch is released uncounted.

    With ``threads`` the handler runs in this number of threads at a time. It has to be safe for threads. The worker
    receives further messages meanwhile, and acks together those that have ended. The messages of a group still run one
    after the other, in their order. A message at its last delivery waits until nothing else is held; where
    ``max_deliveries`` is 1, messages run beside others.

    A handler can raise or return another outcome for its message: an :class:`~shardq.Outcome`. The option ``on_error``
    gives outcomes to errors.

    Any other value that the handler of a message returns is its result. The message is acked with it if its queue has
    ``keep_results``, as :meth:`shardq.Message.ack` does. One that cannot be kept is logged.

    With ``by_batch`` the handler takes the whole :class:`~shardq.Batch` and may settle parts of it itself.

    An async function is called on an event loop of the worker, with all messages of a batch at the same time. The
    messages of a group come one after the other. It takes a :class:`shardq.aio.Message`, or :class:`shardq.aio.Batch`.
    Generator functions are refused with InvalidSetting: calling them runs nothing.

    The worker ends when it is stopped, or when nothing was due for ``idle_exit`` seconds. While the store is
    unavailable it waits and tries again. All options: :class:`~shardq.worker.WorkerOptions`.

    A worker may have several queues of one client, with one handler or a mapping of a handler for each name. They take
    turns by ``weights`` or ``order``, each has its own settings, and ``idle_exit`` means that all are empty. One that
    is deleted or cannot be read is left out, and the others continue; the error is raised when the worker would end.
    :meth:`shardq.Client.pattern` stands for all queues that match, as they come and go.

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
        queue: Queue | QueuePattern | Sequence[Queue | QueuePattern],
        handler: MessageHandler | Mapping[str, MessageHandler],
        *,
        by_batch: Literal[False] = False,
        **options: Unpack[SharedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        queue: Queue | QueuePattern | Sequence[Queue | QueuePattern],
        handler: BatchHandler | Mapping[str, BatchHandler],
        *,
        by_batch: Literal[True],
        **options: Unpack[SharedKeywords],
    ) -> None: ...
    def __init__(
        self,
        queue: Queue | QueuePattern | Sequence[Queue | QueuePattern],
        handler: Handler | Mapping[str, Handler],
        **options: Unpack[WorkerKeywords],
    ) -> None:
        queues = check_opened([queue] if isinstance(queue, Queue | QueuePattern) else queue)
        chosen = WorkerOptions(**options)
        handlers: dict[str, Handler] = assign([each.name for each in queues], handler, chosen)
        for each in handlers.values():
            check_runs("handler", each, awaits=True)
        policy, hooks = error_policy(chosen.on_error), hooks_of(queues[0])
        whole = chosen.batch if chosen.by_batch else None
        super().__init__({each.name: each for each in queues}, chosen, chosen.threads, whole)
        self._receives_beside = chosen.threads > 1
        self._calls = ByQueue({name: self._calls_of(each, policy, hooks) for name, each in handlers.items()})

    def _calls_of(self, handler: Handler, policy: ErrorFunction, hooks: Hooks | None) -> HandlerCalls:
        by_batch = self._options.by_batch
        if not is_async(handler):
            called = observed_handler(hooks, handler)
            return WholeBatch(called, policy) if by_batch else EachMessage(called, policy)
        from shardq.worker.coroutines import HandlerLoop  # noqa: PLC0415 - most workers never need it

        if not isinstance(self._loop, HandlerLoop):
            self._loop = HandlerLoop(self._interrupt)
        return self._loop.calls(handler, policy, hooks, by_batch=by_batch)

    def _consume(self) -> None:
        if self._receives_beside:
            super()._consume()
            return
        consumer = self._consumer = self._make_consumer()
        self._interrupted = False
        try:
            if self._stopping:  # before there was a consumer
                return
            for batch in self._batches(consumer):
                self._tally.add(batches=1)
                self._tally.hold(len(batch))
                attempt = Attempt(batch)
                self._open.add(attempt)
                try:
                    self._work(attempt)
                finally:
                    self._open.remove(attempt)
                    self._tally.hold(0)
        finally:
            self._close(consumer)

    def _batches(self, consumer: Consumer) -> Iterator[Batch]:
        """Receive batch after batch. A message at its last delivery is alone in its batch: see `set_apart`."""
        options, hold_limit = self._options, HoldLimit(len(self._queues) + 2)
        while not self._stopping:
            most = hold_limit.most
            for batch in consumer.batches(most or options.batch, wait=options.idle_exit):
                last = self._at_last_delivery(batch)
                hold_limit.limit(None if last is None else 1)
                kept, rest = set_apart(batch, last)
                if rest is not None:
                    self._return_uncounted(rest)
                yield kept
                if hold_limit.most != most:
                    break
            else:
                return

    def _work(self, attempt: Attempt) -> None:
        queue = self._queues[attempt.batch[0].queue]
        try:
            self._calls[queue.name].run(attempt, self._tally, existing_queue_gate(self._gate, queue))
        finally:
            if not self._is_forked:  # there the messages are the parent's
                self._tally.hold(len(attempt.batch), settling=len(attempt.batch))
                self._settle_all(queue, attempt, self._tally)

    def _last_of(self, batch: Batch) -> Sequence[Message]:
        first = self._at_last_delivery(batch)
        if first is None:
            return ()
        with suppress(ShardqError):
            return [message for message in batch if message.last_delivery]
        return (first,)

    def _units_of(self, batch: Batch) -> Sequence[Unit]:
        if self._options.by_batch:
            return [Unit(batch, batch)]
        return units_of(batch, self._prefetch.of_a_group, Unit)

    def _run_unit(self, unit: Unit) -> None:
        queue = self._queues[unit.attempt.batch[0].queue]
        self._calls[queue.name].run(unit.attempt, self._tally, existing_queue_gate(self._gate, queue))
