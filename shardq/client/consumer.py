"""Receiving messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter

from shardq.base.clock import microseconds
from shardq.base.closing import Closing
from shardq.base.codec import BYTES, Codec, check_codec
from shardq.client.batch import Batch
from shardq.core.context.catalogue import CATALOGUE
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import COUNT, HeldSlice, first_of
from shardq.core.large.bodies import keep_body
from shardq.core.message import Message
from shardq.core.receiving.discovery import QueueDiscovery
from shardq.core.receiving.idling import Idling
from shardq.core.receiving.overlap import Overlap
from shardq.core.receiving.prefetcher import Prefetcher
from shardq.core.receiving.receiving import Receiving
from shardq.core.receiving.several_queues import QueueScheduler, StrictOrder
from shardq.core.settings import check_number
from shardq.core.settling.engine import MAX_LEASE_SECONDS, SettleEngine
from shardq.core.settling.leases import LeaseKeeper, LeaseKeepers
from shardq.errors import Closed, LeaseLost, OutcomeUnknown, StoreUnavailable
from shardq.storage.per_process import forks

__all__ = ["Consumer"]

MAX_BATCH = 100_000
LONGEST_WAIT = 10 * MAX_LEASE_SECONDS
_IS_FINISHED = attrgetter("finished")


class _Engines(dict[str, SettleEngine]):
    """The settle engine of each queue, made when its first message is received."""

    def __init__(self, make: Callable[[str], SettleEngine]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, queue: str) -> SettleEngine:
        self[queue] = engine = self._make(queue)
        return engine


class Consumer(Closing):
    """Receives messages of one queue, or of several.

    Made by :meth:`shardq.Queue.consumer`, or for several queues by :meth:`shardq.Client.consumer`.

    A consumer is used by one thread at a time; its batches and messages may be passed to other threads. A forked child
    needs another consumer. The consumers of a queue share its messages: each message is delivered to one consumer. It
    is redelivered, maybe to another one, if it is not acked within the visibility timeout.

    >>> queue = shardq.connect(url).create_queue("letters")
    >>> with queue.producer() as producer:
    ...     ids = producer.send_many([b"dear", b"sir"])
    >>> with queue.consumer() as consumer:
    ...     for batch in consumer.batches(500, wait=0):
    ...         print([message.body for message in batch])
    ...         batch.ack()
    [b'dear', b'sir']
    """

    def __init__(
        self,
        contexts: Sequence[QueueContext],
        *,
        scheduler: Callable[[], QueueScheduler] | None = None,
        follow: Callable[[ConsumerIdentity], QueueDiscovery] | None = None,
        codec: Codec = BYTES,
        name: str | None = None,
        visibility_timeout: float | None = None,
        keep_leases: bool = False,
        prefetch: int = 0,
    ) -> None:
        check_codec(codec)
        if visibility_timeout is not None:
            check_number("visibility_timeout", visibility_timeout, 0.05, MAX_LEASE_SECONDS)
        check_number("prefetch", prefetch, 0, MAX_BATCH, whole=True)
        lease = None if visibility_timeout is None else microseconds(visibility_timeout)
        identity = ConsumerIdentity.make(name, lease)
        self.name = identity.name
        discovery = None if follow is None else follow(identity)
        self._context = first = contexts[0] if discovery is None else discovery.catalogue
        scheduler = scheduler or partial(StrictOrder, [first.name])
        self._receiving = Receiving(
            contexts,
            identity,
            visibility_timeout=visibility_timeout,
            ahead=prefetch > 0,
            scheduler=scheduler(),
            discovery=discovery,
        )
        self._codec = codec
        self._engines = _Engines(self._engine_of)
        self._receiving.on_change.append(self._engines.clear)
        self._given = tuple(self._receiving.queues) if discovery is None else discovery.texts
        self._stopped = False  # no Event, whose lock a signal within the handler of another one waits for
        self._closing = self._closed = False  # a close that was interrupted is repeated
        self._generation = forks.count
        self._idling = Idling(first.store, first.retry, self._receiving, lambda: self._stopped)
        self._keepers = LeaseKeepers(self._make_keeper) if keep_leases else None
        self._prefetcher = (
            Prefetcher(
                first, self._receiving, self._engine_of, prefetch, scheduler(), leaves=lambda: self._stopped
            )
            if prefetch
            else None
        )
        self._left: list[HeldSlice] = []  # acked, and still to be handed out
        # Of a pop that failed: the next one asks whether they are acked.
        self._unacked: list[HeldSlice] = []
        self._overlap = Overlap(first.retry, self._receiving, self._return_uncounted)

    def receive(self, limit: int = 1, *, wait: float = 0.0) -> Batch:
        """Receive up to ``limit`` messages, and hold them for the visibility timeout.

        Returns as soon as any message is due. If none is due within ``wait`` seconds, the batch is empty. With
        ``wait=0`` an empty batch means that no message was due in the whole queue. A batch may hold fewer messages
        than are due, for one when gathering them took half of their lease. It never holds more than ``limit``
        messages, nor a message twice.

        Raises QueueNotFound, StoreUnavailable or OutcomeUnknown. Messages that were claimed before the error are
        redelivered when their leases expire.
        """
        return self._batch(self._receive(limit, wait))

    def batches(self, limit: int, *, wait: float | None = None) -> Iterator[Batch]:
        """Receive batch after batch, none of them empty.

        Ends when nothing was due for ``wait`` seconds (None: never), or when :meth:`stop` is called.

        On MongoDB, :meth:`shardq.Batch.ack` of a full batch also begins to claim the next one. If that is not asked for
        within a second, its messages are released in their places, and their deliveries are not counted.
        """
        check_number("limit", limit, 1, MAX_BATCH, whole=True)
        patience = MAX_LEASE_SECONDS if wait is None else wait
        try:
            while not self._stopped:
                held = self._receive(limit, patience)
                if held:
                    yield self._batch(held, self._next_claim(held, limit))
                    del held  # so that nothing but the caller holds it while the next is waited for
                elif wait is not None:
                    return
        finally:
            self._overlap.return_uncounted()

    def pop(self, *, wait: float = 0.0) -> Message | None:
        """Receive one message and ack it before it is returned; None when none is due within ``wait`` seconds.

        The message is delivered at most once: if the caller fails, it is lost. Its body, if it is large, can be read
        for two hours. After OutcomeUnknown it may be acked; if it is, the next ``pop`` within the visibility timeout
        hands it out.
        """
        held = self._receive_to_pop(1, wait)
        if held and held[0].finished:
            return Message(held[0], 0, self._codec, self._engines[held[0].shard.queue])
        batch = self._acked(held)
        return batch[0] if batch else None

    def pop_many(self, limit: int, *, wait: float = 0.0) -> Batch:
        """Receive up to ``limit`` messages of one shard and ack them before they are returned, as :meth:`pop` does.

        Stores that can do so receive and ack in one step: SQLite always, MongoDB for the whole rest of a bundle.
        Others need two steps. The batch is empty when none is due within ``wait`` seconds. Call it again for those of
        other shards.

        Each message is delivered at most once: if the caller fails, all of them are lost. After StoreUnavailable they
        are not acked, after OutcomeUnknown they may be. Those that are acked the next ``pop`` or ``pop_many`` within
        the visibility timeout hands out.
        """
        return self._acked(self._receive_to_pop(limit, wait))

    def _receive_to_pop(self, limit: int, wait: float) -> Sequence[HeldSlice]:
        """Take up to ``limit`` messages to ack, or messages that their claim acked.

        Messages that a failed pop may have acked come first.
        """
        if self._unacked:
            check_number("limit", limit, 1, MAX_BATCH, whole=True)
            self._check_open()
            held = [piece for piece in self._unacked if not self._has_expired(piece)]
            first, self._unacked = first_of(held, limit)
            if first:
                return first
        return self._receive(limit, wait, finish=self._context.hooks is None)

    def stop(self) -> None:
        """End waiting and :meth:`batches`. For signal handlers and other threads."""
        self._stopped = True
        self._idling.wake()
        if self._prefetcher is not None:
            self._prefetcher.wake()

    def close(self) -> None:
        """Stop extending leases, release the messages that were claimed ahead, and leave the queue's consumers.

        Messages that were received and not settled are redelivered when their leases expire. A close that was
        interrupted, as by Ctrl-C, can be repeated.
        """
        if self._closed or self._generation != forks.count:
            return
        self._closing = True
        self.stop()
        self._overlap.leave()
        if self._prefetcher is not None:
            self._prefetcher.stop()
        if self._keepers is not None:
            self._keepers.stop()
        self._receiving.deregister()
        self._closed = True

    def _check_open(self) -> None:
        names = ", ".join(map(repr, self._given))
        if self._closing:
            raise Closed(f"this consumer of queue {names} is closed: make another one")
        if self._generation != forks.count:
            raise Closed(
                f"this consumer of queue {names} belongs to the parent process: "
                "make another one in this process"
            )
        self._context.retry.check_open()

    def _receive(self, limit: int, wait: float, *, finish: bool = False) -> Sequence[HeldSlice]:
        if type(limit) is not int or not 0 < limit <= MAX_BATCH:
            check_number("limit", limit, 1, MAX_BATCH, whole=True)
        if type(wait) is not float or not 0.0 <= wait <= LONGEST_WAIT:
            check_number("wait", wait, 0.0, LONGEST_WAIT)
        if self._closing or self._generation != forks.count or self._context.retry.closed:
            self._check_open()
        if self._keepers is not None and self._receiving.counts:  # else a thread settles, and repeats that
            self._keepers.abandon_failed()
        held = self._take(limit, wait) if self._prefetcher else self._claim(limit, wait, finish=finish)
        if self._keepers is not None:
            self._keepers.keep(held)
        return held

    def _batch(self, held: Sequence[HeldSlice], acking: Callable[[], None] | None = None) -> Batch:
        """Return the received messages, which are all of one queue, as a batch."""
        queue = held[0].shard.queue if held else self._context.name
        return Batch(held, self._engines[queue], acking)

    def _engine_of(self, queue: str) -> SettleEngine:
        if queue == CATALOGUE:  # of an empty batch
            return SettleEngine(self._context, self._codec)
        claims = self._receiving.claims(queue)
        return SettleEngine(claims.context, self._codec, claims.reader.changed)

    def _make_keeper(self, queue: str) -> LeaseKeeper:
        claims = self._receiving.claims(queue)
        return LeaseKeeper(self._engine_of(queue), self._context.retry, lambda: claims.known_lease)

    def _return_uncounted(self, held: Sequence[HeldSlice]) -> None:
        self._engines[held[0].shard.queue].return_uncounted([piece.select() for piece in held])

    def _next_claim(self, held: Sequence[HeldSlice], limit: int) -> Callable[[], None] | None:
        """Return the claim that an ack of the batch begins; only a full batch means that more messages are due."""
        full = sum(map(COUNT, held)) >= limit
        if not full or self._prefetcher or not self._context.store.capabilities.claims_beside_acks:
            return None
        return lambda: None if self._stopped else self._overlap.begin(limit)

    def _claim(self, limit: int, wait: float, *, finish: bool) -> list[HeldSlice]:
        if self._left:
            return self._first(self._left, limit)
        deadline = time.monotonic() + wait
        news = self._idling.news
        with self._overlap.claiming:
            if self._overlap.claim is not None and (held := self._overlap.take(limit)):
                return held
            while True:
                left = deadline - time.monotonic()
                held = self._receiving.fill(limit, thorough=left <= 0, finish=finish, news=news)
                if held:
                    if self._idling.has_slept:
                        self._idling.reset()
                    return held if sum(map(COUNT, held)) <= limit else self._first(held, limit)
                if left <= 0 or self._stopped:
                    return []
                news = self._idling.sleep(left)

    def _acked(self, held: Sequence[HeldSlice]) -> Batch:
        """Ack messages that are popped; returns those that no other consumer can have had."""
        lost = frozenset[Message]()
        if all(map(_IS_FINISHED, held)):  # by their claim
            return self._batch(held)
        self._keep_bodies(held)
        try:
            self._batch(held).ack()
        except LeaseLost as error:  # the process slept through the lease: they are somebody else's
            lost = frozenset(error.messages)
        except (StoreUnavailable, OutcomeUnknown):
            self._unacked = [*held, *self._unacked]
            raise
        batch = self._batch([piece for piece in held if not (piece.unanswered and self._has_expired(piece))])
        return batch.part(message for message in batch if message not in lost) if lost else batch

    def _keep_bodies(self, held: Sequence[HeldSlice]) -> None:
        """Keep large bodies for who pops their messages: the ack does not remove them."""
        for piece in held:
            if piece.large is not None:
                keep_body(self._receiving.claims(piece.shard.queue).context, piece.large)
                piece.large = None

    def _first(self, held: Sequence[HeldSlice], limit: int) -> list[HeldSlice]:
        """Return the first ``limit`` messages, and leave the others for the next call.

        Only acked messages can be more.
        """
        first, self._left = first_of(held, limit)
        return first

    def _has_expired(self, piece: HeldSlice) -> bool:
        return self._context.store.now() >= piece.lease_until

    def _take(self, limit: int, wait: float) -> Sequence[HeldSlice]:
        assert self._prefetcher is not None
        deadline = time.monotonic() + wait
        while True:
            left = deadline - time.monotonic()
            held = self._prefetcher.take(limit, max(0.0, min(left, 0.5)))
            if held or self._stopped:
                return held
            if left <= 0:
                return self._prefetcher.take_now(limit)
