"""Sends whose appends are in flight, as many at a time as the store takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from shardq.context.queue_context import QueueContext
from shardq.sending.storing import PlannedSend, Written, store_send

__all__ = ["InFlightAppends"]


class InFlightAppends:
    """Stores sends, as many at a time as the store takes (``appends_at_once``); answers come in the order given.

    So the memory of a bulk send is bounded, and a slow store slows its producers down. Two sends to one shard are
    never in flight together, which keeps a shard's messages in the order of their sends.
    """

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._most = context.store.capabilities.appends_at_once
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[PlannedSend, set[object], Future[Written]]] = deque()

    def __enter__(self) -> InFlightAppends:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def add(self, send: PlannedSend) -> Iterator[tuple[PlannedSend, Written]]:
        """Send it on its way; returns those that had to be waited for, with what became of them."""
        if self._most == 1:
            yield send, _store(self._context, send)
            return
        exclusive = send.exclusive
        while len(self._waiting) >= self._most or any(
            not exclusive.isdisjoint(other) for _, other, _ in self._waiting
        ):
            yield self._oldest()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._most, thread_name_prefix="shardq-send")
        future = self._threads.submit(_store, self._context, send)
        self._waiting.append((send, exclusive, future))

    def rest(self) -> Iterator[tuple[PlannedSend, Written]]:
        """Wait for everything that is on its way."""
        while self._waiting:
            yield self._oldest()

    def _oldest(self) -> tuple[PlannedSend, Written]:
        send, _, future = self._waiting.popleft()
        return send, future.result()


def _store(context: QueueContext, send: PlannedSend) -> Written:
    try:
        return store_send(context, send)
    except Exception as error:  # a defect; the rest of the call must still be accounted for
        return Written([None] * len(send.messages), error, tuple(send.bundles))
