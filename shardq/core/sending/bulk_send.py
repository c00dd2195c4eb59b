"""Sending many messages with one call: one bundle is read at a time, and several are stored at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from operator import itemgetter
from types import TracebackType
from typing import Any

import msgspec

from shardq.base.codec import BYTES, Codec
from shardq.base.large_body import LargeBody
from shardq.base.outgoing_message import OutgoingMessage
from shardq.base.receipt import SentIds
from shardq.core.context.queue_context import QueueContext
from shardq.core.hooks import stamped
from shardq.core.sending.appending import prepare
from shardq.core.sending.planned_bundles import PlannedBundle
from shardq.core.sending.prepared import Send, prepare_options, size_of
from shardq.core.sending.storing import Written, plan_sends, report_stored, store_sends
from shardq.errors import InvalidMessage, OutcomeUnknown, PartialSend
from shardq.storage.abilities import TransactionEnded

__all__ = ["BulkSend", "BundleLimits"]


_AT_ONCE = 100  # messages that are drawn and checked together


class BundleLimits(msgspec.Struct, frozen=True):
    """How large a bundle may get: messages, and bytes of bodies."""

    messages: int
    size: int


class BulkSend:
    """One call of ``send_many``.

    At the first failure it reads no more, and waits for the bundles in flight, so that the result of every message is
    known.
    """

    def __init__(
        self,
        context: QueueContext,
        bodies: Iterable[Any],
        shared: OutgoingMessage,
        *,
        codec: Codec,
        limits: BundleLimits,
    ) -> None:
        self._context, self._codec, self._limits = context, codec, limits
        self._bodies, self._source = bodies, Source(bodies)
        self._outgoing, self._shared = shared, prepare_options(shared, context.name)
        self._most_body_bytes = context.settings.max_message_bytes - size_of(self._shared.headers)
        self._large = False  # few messages make a bundle
        self._sent = SentIds()
        self._unsent: list[OutgoingMessage] = []
        self._positions: list[int] = []  # of what is unsent
        self._answered = 0  # messages of which it is known what became of them: the first ones
        self._error: Exception | None = None
        self._unknown = False  # something that is not confirmed may be stored

    def store_more(self, bodies: Iterable[Any]) -> SentIds:
        """Store further bodies after those that are stored, as :meth:`run` does; returns the ids of all."""
        self._source = Source(bodies, handed_out=self._source.handed_out)
        return self.run()

    def run(self) -> SentIds:
        """Store everything; raises PartialSend, or the error itself if nothing is stored."""
        refused: list[Any] = []
        with InFlightAppends(self._context) as appends:
            while bundles := self._next(refused):
                self._collect(appends.add(bundles))
            self._collect(appends.rest())
        if self._error is None:
            return self._sent
        if isinstance(self._error, TransactionEnded):
            raise self._error
        self._leave(refused)
        if not self._sent and isinstance(self._bodies, Sequence) and not self._unknown:
            raise self._error
        raise self._partial(self._error) from self._error

    def _next(self, refused: list[Any]) -> list[PlannedBundle]:
        """Return the next bundle's worth; nothing at the end or after a failure.

        Items that failed here are ``refused``.
        """
        if self._error is not None:
            return []
        items: list[Any] = []
        try:
            sends = self._draw(items)
            if not items:
                return []
            self._context.live.current()
            return plan_sends(self._context, sends)
        except Exception as error:
            self._error = error
            refused += items
            return []

    def _draw(self, chunk: list[Any]) -> list[Send]:
        """Draw one bundle's worth of messages into the chunk, also when it raises.

        Bodies that share their options are checked many at a time, as this takes most of the time of a bulk send.
        """
        if self._large:
            return self._draw_each(chunk, [])
        bodies: list[bytes] = []
        size = 0
        while (missing := self._limits.messages - len(chunk)) and (
            items := self._source.take(min(_AT_ONCE, missing))
        ):
            some = self._encoded(items)
            size += sum(map(len, some))
            if not some or size >= self._limits.size:
                self._source.put_back(items)
                return self._draw_each(chunk, bodies)
            chunk += items
            bodies += some
        return [msgspec.structs.replace(self._shared, items=chunk, bodies=bodies)]

    def _encoded(self, items: list[Any]) -> list[bytes]:
        """Encode the bodies; an empty list if some item has to be prepared alone."""
        kinds = set(map(type, items))
        bodies = items
        if self._codec is not BYTES or kinds != {bytes}:
            if any(issubclass(kind, (OutgoingMessage, LargeBody)) for kind in kinds):
                return []
            try:
                bodies = list(map(self._codec.encode, items))
            except Exception:  # raised again when the item is prepared alone
                return []
        return bodies if max(map(len, bodies)) <= self._most_body_bytes else []

    def _draw_each(self, chunk: list[Any], bodies: list[bytes]) -> list[Send]:
        """Draw single items to the end of the bundle."""
        sends = msgspec.structs.replace(self._shared, items=chunk, bodies=bodies).each()
        size = sum(map(len, bodies))
        while items := self._source.take(1):
            full = size >= self._limits.size or len(sends) >= self._limits.messages
            if full and not _neighbours(chunk, items):
                self._source.put_back(items)
                break
            chunk += items
            sends.append(self._prepared(*items))
            size += len(sends[-1].bodies[0])
        self._large = len(sends) < _AT_ONCE and size >= self._limits.size
        return sends

    def _prepared(self, item: Any) -> Send:
        """Prepare the item that was drawn last. An error names its place, for users who search among thousands."""
        body, options = item, self._shared
        try:
            if isinstance(item, OutgoingMessage):
                if self._context.hooks is not None:
                    item = stamped(self._context.hooks, self._context.name, item)
                body, options = item.body, prepare_options(item, self._context.name)
            return prepare(self._context, item, body, options, self._codec)
        except InvalidMessage as error:
            position = self._source.handed_out - 1
            refused = type(error)(f"bodies[{position}]: {error}")
            refused.position = position
            raise refused from error

    def _collect(self, results: Iterable[Written]) -> None:
        for written in results:
            self._sent.extend(written.stored)
            if written.error is not None:
                if not isinstance(written.error, Exception):
                    raise written.error
                self._error = self._error or written.error
                self._unknown = self._unknown or isinstance(written.error, OutcomeUnknown)
                for place, message in sorted(written.unsent(), key=itemgetter(0)):
                    self._unsent.append(message)
                    self._positions.append(self._answered + place)
            self._answered += len(written.ids)
            if self._context.hooks is not None:
                self._report_stored(written)

    def _report_stored(self, written: Written) -> None:
        """Call the hook; its error ends the call, what is stored stays so."""
        try:
            report_stored(self._context, written)
        except Exception as error:
            self._error = self._error or error

    def _partial(self, error: Exception) -> PartialSend:
        left = self._source.rest if isinstance(self._bodies, Sequence) else self._source.drawn
        self._leave(left)
        text = (
            f"{len(self._sent)} messages are stored in queue {self._context.name!r}, "
            f"{len(self._unsent)} are not: {error}"
        )
        remedy = "take the refused message out of `error.unsent`, or correct it, and send the rest"
        if not isinstance(error, InvalidMessage):
            remedy = "send `error.unsent` again"
        return PartialSend(f"{text}; {remedy}", self._sent, self._unsent, self._positions)

    def _leave(self, items: Iterable[Any]) -> None:
        """Note that these are unsent, too: they come behind all that is answered."""
        for item in items:
            self._unsent.append(self._as_outgoing(item))
            self._positions.append(self._answered)
            self._answered += 1

    def _as_outgoing(self, item: Any) -> OutgoingMessage:
        return (
            item if isinstance(item, OutgoingMessage) else msgspec.structs.replace(self._outgoing, body=item)
        )


def _neighbours(chunk: Sequence[Any], items: Sequence[Any]) -> bool:
    """Return whether the next message shared a bundle with the last one when both were sent before, and must stay."""
    ids = [
        item.id.rpartition(":")[0]
        for item in (chunk[-1], *items)
        if isinstance(item, OutgoingMessage) and item.id
    ]
    return len(ids) == 2 and ids[0] == ids[1]


class Source:
    """The items of an iterable, some at a time; returned items come again.

    An item that was drawn is never lost: what comes before an error of the iterable is handed out before it is raised.
    """

    def __init__(self, items: Iterable[Any], handed_out: int = 0) -> None:
        self._items = iter(items)
        self._put_back: deque[Any] = deque()
        self._error: Exception | None = None
        self.handed_out = handed_out
        """The number of items that were handed out and not returned, with those of earlier sources."""

    def take(self, most: int) -> list[Any]:
        """Return the next items; none at the end."""
        taken: list[Any] = []
        while self._put_back and len(taken) < most:
            taken.append(self._put_back.popleft())
        if self._error is not None and not taken:
            raise self._error
        if self._error is None and len(taken) < most:
            try:
                taken.extend(islice(self._items, most - len(taken)))
            except Exception as error:
                if not taken:
                    raise
                self._error = error
        self.handed_out += len(taken)
        return taken

    def put_back(self, items: list[Any]) -> None:
        """Hand these out again before all others, in their order."""
        self._put_back.extendleft(reversed(items))
        self.handed_out -= len(items)

    @property
    def drawn(self) -> Iterator[Any]:
        """The items that were returned and not handed out since."""
        return iter(self._put_back)

    @property
    def rest(self) -> Iterator[Any]:
        """All that is left."""
        while items := self.take(1):
            yield from items


class InFlightAppends:
    """Stores sends, as many at a time as the store takes (``requests_at_once``); answers come in the order given.

    So the memory of a bulk send is bounded, and a slow store slows its producers down. Two sends to one shard are
    never in flight together, and nothing is begun once one is known to have failed. This keeps a shard's messages in
    the order of their sends.
    """

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._most = context.store.capabilities.requests_at_once
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[set[object], Future[Written]]] = deque()
        self._failure: BaseException | None = None

    def __enter__(self) -> InFlightAppends:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def add(self, bundles: list[PlannedBundle]) -> Iterator[Written]:
        """Store the bundles, aside if the store takes several requests. Yield the results that had to be waited for."""
        if self._most == 1:
            yield _store(self._context, bundles)
            return
        exclusive = _exclusive(bundles)
        while len(self._waiting) >= self._most or any(
            not exclusive.isdisjoint(other) for other, _ in self._waiting
        ):
            yield self._oldest()
        if self._failure is not None:
            yield from self.rest()  # which was given before it
            yield Written.failed(bundles, self._failure)
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._most, thread_name_prefix="shardq-send")
        future = self._threads.submit(_store, self._context, bundles)
        self._waiting.append((exclusive, future))

    def rest(self) -> Iterator[Written]:
        """Wait for everything that is on its way."""
        while self._waiting:
            yield self._oldest()

    def _oldest(self) -> Written:
        _, future = self._waiting.popleft()
        written = future.result()
        self._failure = self._failure or written.error
        return written


def _exclusive(bundles: Sequence[PlannedBundle]) -> set[object]:
    """Return the shards and keys that no other send in flight may have: this keeps their order."""
    keys = {(planned.key, planned.unique_key) for planned in bundles}
    return {planned.shard for planned in bundles} | (keys - {(None, None)})


def _store(context: QueueContext, bundles: Sequence[PlannedBundle]) -> Written:
    try:
        return store_sends(context, bundles)
    except Exception as error:  # a defect; the rest of the call must still be accounted for
        return Written.failed(bundles, error)
