"""Claiming messages ahead of their consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from shardq.base.clock import seconds
from shardq.base.log import Log
from shardq.base.waits import BackgroundThread, ChangeNotifier
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import HeldSlice, count_of
from shardq.core.receiving.idling import Idling
from shardq.core.receiving.prefetch_buffer import Ahead
from shardq.core.receiving.receiving import SURVEY_SECONDS, Receiving
from shardq.core.receiving.several_queues import QueueScheduler
from shardq.core.settling.engine import SettleEngine
from shardq.core.settling.leases import LeaseKeeper, LeaseKeepers
from shardq.errors import Closed, OutcomeUnknown, QueueNotFound, ShardqError, StoreUnavailable

__all__ = ["Prefetcher"]

_log = Log(__name__)

PAUSE_SECONDS = 0.1
HAND_OUT_PATIENCE = (0.2, 0.2, 0.2, None)  # seconds to count deliveries in; None: the client's own


class Prefetcher:
    """A thread that keeps up to ``size`` messages of each queue claimed and ready to be taken.

    It begins when messages are first asked for: a Ctrl-C while its consumer is made would hide what it had claimed.

    Their leases are extended while they wait. Messages that waited for as long as a lease are released in their
    places, without a delivery. Then claiming stops until messages are asked for: other consumers may be free. Messages
    that expired while they waited are not handed out.

    Where the queue has ``max_deliveries``, a delivery is counted when :meth:`take` hands the messages out. It returns
    when the store has counted it, so that a handler which ends its process has been counted too. That is one request
    for each shard that they are from.

    Several queues take turns, both when messages are claimed and when they are handed out.
    """

    def __init__(
        self,
        first: QueueContext,
        receiving: Receiving,
        engine: Callable[[str], SettleEngine],
        size: int,
        scheduler: QueueScheduler,
        timer: Callable[[], float] = time.monotonic,
        leaves: Callable[[], bool] = lambda: False,
    ) -> None:
        self._retry, self._receiving = first.retry, receiving
        self._engine, self._size = engine, size
        self._scheduler, self.timer = scheduler, timer
        self._leaves = leaves  # nobody waits in `take` any more
        self._lock = threading.RLock()
        self._changes = ChangeNotifier(self._lock)
        self.wake = self._changes.notify_all  # lets `take` look whether its caller leaves
        self._claiming = threading.Lock()  # held while somebody claims, or uses the reader
        self._wanted = True
        self._released_older = 0  # slices that may be of a queue that was deleted
        self._stopped = False
        self._error: ShardqError | None = None
        self._idling = Idling(first.store, self._retry, receiving, lambda: self._has_ended, self._claiming)
        self._queues: dict[str, Ahead] = {}
        self._follow()
        receiving.on_change.append(self._follow)
        self._keepers = LeaseKeepers(self._make_keeper)
        self._thread = BackgroundThread("shardq-prefetcher")

    def take(self, limit: int, seconds: float) -> list[HeldSlice]:
        """Return up to ``limit`` messages of one queue; waits up to ``seconds`` for the first.

        Paused queues are left out. An error that stopped the thread is raised here, and the thread tries again.
        """
        self._retry.check_open()  # the thread ends with the client
        with self._lock:
            new = None if self._stopped else self._thread.prepare(self._run)
        if new is not None and not self._thread.begin(new):
            raise RuntimeError(
                "no thread can be started to claim ahead: end other threads, or use prefetch=0"
            )
        error: ShardqError | None = None
        failing: set[str] = set()
        for patience in HAND_OUT_PATIENCE:
            taken = self._unexpired(self._pop(limit, seconds, failing))
            with self._retry.within(patience):
                error = self._start(taken)
            held = self._of_this_consumer(taken)
            if held:
                self._scheduler.took(held[0].shard.queue, count_of(held))
            if held or error is None:
                return held
            failing.add(taken[0].shard.queue)
        assert error is not None
        raise error

    def take_now(self, limit: int) -> list[HeldSlice]:
        """Return up to ``limit`` messages, claimed now if none wait. An empty list: nothing was due in any queue."""
        while True:
            before = self._released_older
            with self._claiming:
                if claimed := not self._waiting(self._closed()):
                    self._put(self._receiving.fill(limit, thorough=True))
                    with self._lock:
                        self._error = None  # what was read now says more than what could not be read before
                        self._changes.notify_all()
            held = self.take(limit, 0.0)
            if held or (claimed and before == self._released_older):
                return held  # else all that waited has expired or was lost

    def stop(self) -> None:
        """Stop claiming, and release messages that were not started."""
        with self._lock:
            self._stopped = True
            self._changes.notify_all()
            self._idling.wake()
        try:
            self._thread.join()
        finally:  # after a Ctrl-C, too: else waiting messages would be held for as long as the process lives
            self._keepers.stop()
        for queue in self._queues.values():
            with self._lock:
                held = queue.buffer.clear()
            queue.return_uncounted(held)

    def _make_keeper(self, name: str) -> LeaseKeeper:
        claims = self._receiving.claims(name)
        return LeaseKeeper(self._engine(name), self._retry, lambda: claims.known_lease)

    def _follow(self) -> None:
        """Claim ahead from the queues that there are now, and release the messages of the others."""
        claims = self._receiving.queues
        with self._lock:
            before = self._queues
            self._queues = {
                name: before.get(name) or Ahead(each, self._engine(name), self._size)
                for name, each in claims.items()
            }
            left = [(queue, queue.buffer.clear()) for name, queue in before.items() if name not in claims]
        for queue, held in left:
            self._return_uncounted(queue, held)
        if (discovery := self._receiving.discovery) is not None:
            self._scheduler.follow(discovery.found)

    def _of(self, held: Sequence[HeldSlice]) -> Ahead:
        """Return the queue of these messages, which may have been deleted since they were claimed."""
        name = held[0].shard.queue
        return self._queues.get(name) or Ahead(self._receiving.claims(name), self._engine(name), self._size)

    # -- the thread ---------------------------------------------------------------------------------------------

    @property
    def _has_ended(self) -> bool:
        """True when messages are not asked for any more."""
        return self._stopped or self._retry.closed

    def _run(self) -> None:
        with self._retry.unless(lambda: self._stopped, refuse=False):  # who stops it waits for its end
            while not self._has_ended:
                try:
                    self._wait_until_free()
                    self.fetch()
                except Closed:
                    return
                except ShardqError as error:
                    self._note(error)

    def _note(self, error: ShardqError) -> None:
        """Continue soon after a retryable error, which was repeated for a while; after any other once it was raised."""
        if error.retryable:
            _log.warning("nothing was claimed ahead, trying again: %s", error)
            time.sleep(PAUSE_SECONDS)
            return
        self._error = error
        self._changes.notify_all()
        self._changes.wait_for(lambda: self._has_ended or self._error is None)

    def _wait_until_free(self) -> None:
        """Wait until there is something to claim for, or messages may have waited for too long."""
        shortest = seconds(min((queue.lease for queue in self._queues.values()), default=4_000_000))
        self._changes.wait_for(
            lambda: self._has_ended or (self._wanted and (bool(self._free()) or not self._queues)),
            shortest / 4,
        )

    def fetch(self) -> None:
        """Release messages that have waited for too long, and claim as many as there is room for."""
        with self._lock:
            now = self.timer()
            overdue = {
                queue: queue.buffer.overdue(now - seconds(queue.lease)) for queue in self._queues.values()
            }
            self._wanted = self._wanted and not any(overdue.values())
            free = self._free() if self._wanted and not self._has_ended else {}
        for queue, held in overdue.items():
            self._return_uncounted(queue, held)
        if free or not self._queues:
            self._claim(free)
        else:
            with self._claiming:
                self._receiving.follow()

    def _claim(self, free: Mapping[str, int]) -> None:
        """Claim for queues that have room. While others have none, these are looked at only now and then."""
        some_full = len(free) < len(self._queues)
        with self._claiming:
            known = any(queue.has_candidates for name in free if (queue := self._queues.get(name)))
        if some_full and not known and not (free := self._free_later(free)):
            return
        with self._claiming:
            held = self._receiving.fill(max(free.values(), default=1), thorough=False, limits=free)
            self._put(held)
        if held:
            self._idling.reset()
        elif not some_full:
            self._idling.sleep(1.0)
        elif known:
            self._free_later(free)

    def _free(self) -> dict[str, int]:
        """Return how many messages to claim of each queue that has room for some."""
        free = {name: queue.buffer.free for name, queue in self._queues.items()}
        return {name: count for name, count in free.items() if count}

    def _free_later(self, free: Mapping[str, int]) -> Mapping[str, int]:
        """Return the free places when another queue has some too, or when it is time to probe these again."""
        self._changes.wait_for(lambda: self._has_ended or self._free().keys() - free.keys(), SURVEY_SECONDS)
        with self._lock:
            return {} if self._has_ended else self._free()

    def _put(self, held: Sequence[HeldSlice], *, again: bool = False) -> None:
        """Let messages of one queue wait, maybe ``again``: behind the others. Release them if nobody takes them."""
        if not held:
            return
        self._keepers.keep(held)
        with self._lock:
            queue = None if self._stopped else self._queues.get(held[0].shard.queue)
            if queue is not None:
                queue.add(held, self.timer(), again=again)
                self._changes.notify_all()
        if queue is None:
            self._return_uncounted(self._of(held), held)

    def _return_uncounted(self, queue: Ahead, held: Sequence[HeldSlice]) -> None:
        if held:
            self._keepers.leave(held)
            queue.return_uncounted(held)

    # -- handing out --------------------------------------------------------------------------------------------

    def _closed(self) -> set[str]:
        """Release messages of deleted queues. Return the queues that are paused or cannot be read."""
        closed = set()
        for queue in self._queues.values():
            if len(queue.buffer):
                try:
                    paused = queue.context.settings.delivery_paused
                except (QueueNotFound, StoreUnavailable, OutcomeUnknown):
                    if len(self._queues) == 1 and self._receiving.discovery is None:
                        raise
                    paused = True
                if paused:
                    closed.add(queue.name)
                with self._lock:
                    self._released_older += len(older := queue.take_older())
                self._return_uncounted(queue, older)
        return closed

    def _waiting(self, closed: Collection[str]) -> list[Ahead]:
        """Return the queues that have messages to hand out, the one whose turn it is first."""
        order = (self._queues.get(name) for name in self._scheduler.order() if name not in closed)
        return [queue for queue in order if queue is not None and len(queue.buffer)]

    def _pop(self, limit: int, seconds: float, failing: Collection[str]) -> list[HeldSlice]:
        closed = self._closed()
        with self._lock:
            self._wanted = True
        self._changes.notify_all()

        def take_if_ready() -> list[list[HeldSlice]]:
            """Find nothing to wait for longer, or what is taken."""
            waiting = self._waiting(closed)
            is_ready = waiting or self._error or self._stopped or self._leaves()
            return [self._take_first(waiting, limit, failing)] if is_ready else []

        found = self._changes.wait_for(take_if_ready, seconds)
        if not found:
            with self._lock:
                found = [self._take_first((), limit, failing)]
        self._changes.notify_all()
        return found[0]

    def _take_first(self, waiting: Sequence[Ahead], limit: int, failing: Collection[str]) -> list[HeldSlice]:
        """Take up to ``limit`` messages of the first queue that has some. Raises the thread's error if none has."""
        taken: list[HeldSlice] = []
        empty = [queue for queue in self._queues.values() if not len(queue.buffer)]
        for queue in sorted(waiting, key=lambda queue: queue.name in failing)[:1] or empty:
            taken, left, rest = queue.buffer.take(limit)
            self._keepers.leave(left)
            self._keepers.keep(rest)
        if not taken and self._error is not None:
            error, self._error = self._error, None  # a full disk, for one, may have room the next time
            raise error
        return taken

    def _unexpired(self, popped: Sequence[HeldSlice]) -> list[HeldSlice]:
        """Return the messages that have not expired.

        Expired messages that could not be removed are held until their lease expires. Waiting messages of their groups
        are lost by then, so they are released now.
        """
        try:
            taken = self._receiving.unexpired(popped)
        except ShardqError:
            self._put([part for piece in popped for part in piece.held_parts], again=True)
            raise
        left = set(popped).difference(taken) if len(taken) < len(popped) else ()
        if stuck := {piece.bundle.group for piece in left if piece.open} - {""}:
            queue = self._of(popped)
            with self._lock:
                behind = queue.buffer.take_groups(stuck)
            self._return_uncounted(queue, behind)
        return taken

    def _of_this_consumer(self, taken: Sequence[HeldSlice]) -> list[HeldSlice]:
        """Return the messages that the consumer may work on. Uncounted ones wait again, behind the others."""
        held = [part for piece in taken for part in piece.held_parts]
        self._put([piece for piece in held if not piece.started], again=True)
        return [piece for piece in held if piece.started]

    def _start(self, taken: Sequence[HeldSlice]) -> ShardqError | None:
        """Count deliveries that are not counted, and extend leases that are half over."""
        if not taken:
            return None
        queue = self._of(taken)
        lease, engine = queue.lease, queue.engine
        half = queue.context.store.now() + lease // 2
        try:
            if selections := [piece.select() for piece in taken if not piece.started]:
                engine.start(selections, lease)
            if selections := [piece.select() for piece in taken if piece.lease_until < half]:
                engine.keep(selections, lease)
        except ShardqError as error:
            return error
        return None
