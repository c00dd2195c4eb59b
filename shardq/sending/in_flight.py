"""Bundles on their way to the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import msgspec

from shardq.context.queue_context import QueueContext
from shardq.sending.outgoing import PreparedMessage
from shardq.sending.planned import Draft
from shardq.sending.writing import Written, store

__all__ = ["Chunk", "Window"]


class Chunk(msgspec.Struct, frozen=True):
    """Messages that are stored together: as they were given, as they were checked, and the bundles that they make."""

    items: Sequence[Any]
    messages: Sequence[PreparedMessage]
    drafts: Sequence[Draft]

    @property
    def claims(self) -> set[object]:
        """What no other chunk may touch at the same time: order within a shard, and who is first with a dedupe key."""
        return {draft.shard for draft in self.drafts} | {
            draft.dedupe_key for draft in self.drafts if draft.dedupe_key is not None
        }


class Window:
    """Stores chunks, as many at a time as the store takes (``appends_at_once``); answers come in the order given.

    So the memory of a bulk send is bounded by the window, and a slow store slows its producers down. Two chunks
    for one shard are never on their way together, which keeps a shard's messages in the order of their sends.
    """

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._size = context.store.capabilities.appends_at_once
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[Chunk, set[object], Future[Written]]] = deque()

    def __enter__(self) -> Window:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def add(self, chunk: Chunk) -> Iterator[tuple[Chunk, Written]]:
        """Send a chunk on its way; returns those that had to be waited for, with what became of them."""
        if self._size == 1:
            yield chunk, _store(self._context, chunk)
            return
        claims = chunk.claims
        while len(self._waiting) >= self._size or any(
            not claims.isdisjoint(other) for _, other, _ in self._waiting
        ):
            yield self._oldest()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="shardq-send")
        future = self._threads.submit(_store, self._context, chunk)
        self._waiting.append((chunk, claims, future))

    def rest(self) -> Iterator[tuple[Chunk, Written]]:
        """Wait for everything that is on its way."""
        while self._waiting:
            yield self._oldest()

    def _oldest(self) -> tuple[Chunk, Written]:
        chunk, _, future = self._waiting.popleft()
        return chunk, future.result()


def _store(context: QueueContext, chunk: Chunk) -> Written:
    count = len(chunk.messages)
    try:
        return store(context, chunk.drafts, count)
    except Exception as error:  # a defect; the rest of the call must still be accounted for
        return Written([None] * count, error, tuple(chunk.drafts))
