"""Claiming messages ahead of their consumer."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from shardq.clock import seconds
from shardq.context.queue_context import QueueContext
from shardq.errors import ShardqError
from shardq.held import HeldSlice, first_of
from shardq.receiving.idling import Idling
from shardq.receiving.receiving import Receiving
from shardq.settling.lease_keeper import LeaseKeeper
from shardq.settling.settlement import Settlement

__all__ = ["PrefetchBuffer", "Prefetcher"]


_log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.1
HAND_OUT_PATIENCE = (0.2, 0.2, 0.2, None)
"""Seconds for which counting deliveries is repeated before other messages are tried; None: the client's own."""


class Prefetcher:
    """A thread that keeps up to ``size`` messages claimed and ready to be taken.

    Their leases are extended while they wait. Messages that waited for as long as a lease are released in their places,
    without a delivery, and nothing more is claimed until somebody asks for messages: other consumers may be free. What
    has expired while it waited is not handed out.

    Where the queue has ``max_deliveries``, a delivery is counted when :meth:`take` hands the messages out: it
    returns when the store has counted it, so that a handler which ends its process has been counted too. That is one
    request for each shard that they are from.
    """

    def __init__(
        self,
        context: QueueContext,
        receiving: Receiving,
        settlement: Settlement,
        size: int,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context, self._receiving, self._settlement, self._timer = context, receiving, settlement, timer
        self._lock = threading.RLock()  # taken in one step, unlike a Condition: Ctrl-C may come anywhere
        self._changed = threading.Condition(self._lock)
        self._claiming = threading.Lock()  # held while somebody claims, or uses the reader
        self._buffer = PrefetchBuffer(size)
        self._wanted = True
        self._stopped = False
        self._error: ShardqError | None = None
        self._idling = Idling(context.store, context.retry, receiving, lambda: self._stopped, self._claiming)
        self._keeper = LeaseKeeper(settlement, context.retry, self._lease)
        self._thread = threading.Thread(target=self._run, name="shardq-prefetcher", daemon=True)
        self._thread.start()

    @property
    def _lease(self) -> int:
        return self._receiving.queues[self._context.name].lease

    def take(self, limit: int, seconds: float) -> list[HeldSlice]:
        """Up to so many messages; waits so many seconds for the first. An empty list while delivery is paused.

        An error that stopped the thread is raised here, and the thread tries again.
        """
        if self._context.settings.delivery_paused:
            with self._lock:
                self._changed.wait_for(lambda: self._stopped, seconds)
            return []
        error: ShardqError | None = None
        for patience in HAND_OUT_PATIENCE:
            taken = self._receiving.unexpired(self._pop(limit, seconds))
            with self._context.retry.within(patience):
                error = self._start(taken)
            held = self._of_this_consumer(taken)
            if held or error is None:
                return held
        assert error is not None
        raise error

    def take_now(self, limit: int) -> list[HeldSlice]:
        """Up to so many messages, claimed now if none wait. An empty list: nothing was due in the whole queue."""
        while True:
            with self._claiming:
                if claimed := not len(self._buffer):
                    self._put(self._receiving.fill(limit, thorough=True))
                    with self._lock:
                        self._error = None  # what was read now says more than what could not be read before
                        self._changed.notify_all()
            held = self.take(limit, 0.0)
            if held or claimed or self._context.settings.delivery_paused:
                return held  # else all that waited has expired or was lost

    def stop(self) -> None:
        """Claim nothing more, and give back what nobody has started to work on."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()
        self._keeper.stop()
        self._give_back(self._buffer.clear())

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._fetch()
            except ShardqError as error:
                self._note(error)

    def _note(self, error: ShardqError) -> None:
        """Go on soon after a retryable error, which was repeated for a while; after any other once it was raised."""
        if error.retryable:
            _log.warning("nothing was claimed ahead, trying again: %s", error)
            time.sleep(PAUSE_SECONDS)
            return
        with self._lock:
            self._error = error
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopped or self._error is None)

    def _fetch(self) -> None:
        lease = seconds(self._lease)
        with self._lock:
            self._changed.wait_for(
                lambda: self._stopped or (self._wanted and self._buffer.room > 0), lease / 4
            )
            overdue = self._buffer.overdue(self._timer() - lease)
            self._wanted = self._wanted and not overdue
            room = self._buffer.room if self._wanted and not self._stopped else 0
        if overdue:
            self._keeper.leave(overdue)
            self._give_back(overdue)
        if room:
            self._claim(room)

    def _claim(self, room: int) -> None:
        with self._claiming:
            held = self._receiving.fill(room, thorough=False)
            self._put(held)
        if held:
            self._idling.reset()
        else:
            self._idling.sleep(1.0)

    def _put(self, held: list[HeldSlice]) -> None:
        if not held:
            return
        self._keeper.keep(held)
        with self._lock:
            self._buffer.add(held, self._timer())
            self._changed.notify_all()

    def _pop(self, limit: int, seconds: float) -> list[HeldSlice]:
        with self._lock:
            self._wanted = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._buffer) or self._error or self._stopped, seconds)
            taken, left, rest = self._buffer.take(limit)
            self._keeper.leave(left)
            self._keeper.keep(rest)
            self._changed.notify_all()
            if not taken and self._error is not None:
                error, self._error = self._error, None  # a full disk, for one, may have room the next time
                raise error
        return taken

    def _of_this_consumer(self, taken: Sequence[HeldSlice]) -> list[HeldSlice]:
        """Those that the consumer may work on. What could not be counted waits again, behind the others."""
        held = [part for piece in taken for part in piece.held_parts]
        if waiting := [piece for piece in held if not piece.started]:
            self._keeper.keep(waiting)
            with self._lock:
                self._buffer.put_back(waiting, self._timer())
        return [piece for piece in held if piece.started]

    def _start(self, taken: Sequence[HeldSlice]) -> ShardqError | None:
        """Count deliveries that are not counted, and extend leases that are half over."""
        lease = self._lease
        half = self._context.store.now() + lease // 2
        try:
            if selections := [piece.select() for piece in taken if not piece.started]:
                self._settlement.start(selections, lease)
            if selections := [piece.select() for piece in taken if piece.lease_until < half]:
                self._settlement.keep(selections, lease)
        except ShardqError as error:
            return error
        return None

    def _give_back(self, held: Sequence[HeldSlice]) -> None:
        try:
            self._settlement.give_back([piece.select() for piece in held])
        except ShardqError as error:
            _log.warning("what was claimed ahead comes back when its lease is over: %s", error)


class _Waiting(msgspec.Struct, frozen=True):
    piece: HeldSlice
    since: float


class PrefetchBuffer:
    """Holds up to ``size`` messages in their order, each for a limited time. For a caller that has its own lock.

    After messages had to leave because nobody took them, it holds no more than were taken in the time before. That is
    doubled each time that it is found empty.
    """

    def __init__(self, size: int) -> None:
        self._size = self._most = size
        self._waiting: deque[_Waiting] = deque()
        self._messages = 0
        self._served = 0  # messages taken since some last had to leave
        self._emptied = False  # nothing waits because all had to leave

    def __len__(self) -> int:
        return self._messages

    @property
    def room(self) -> int:
        """How many messages to claim: none, or at least half of those it may hold."""
        free = self._most - len(self)
        return free if 2 * free >= self._most else 0

    @property
    def pieces(self) -> list[HeldSlice]:
        """All slices that wait."""
        return [waiting.piece for waiting in self._waiting]

    def add(self, held: list[HeldSlice], now: float) -> None:
        """Let these wait behind the others."""
        self._emptied = False
        self._messages += sum(piece.count for piece in held)
        self._waiting.extend(_Waiting(piece, now) for piece in held)

    def put_back(self, held: list[HeldSlice], now: float) -> None:
        """Let these wait again behind the others, and behind them what follows them in their groups."""
        groups = {piece.bundle.group for piece in held} - {""}
        following = [waiting for waiting in self._waiting if waiting.piece.bundle.group in groups]
        self._waiting = deque(waiting for waiting in self._waiting if waiting not in following)
        self.add(held, now)
        self._waiting.extend(following)

    def take(self, limit: int) -> tuple[list[HeldSlice], list[HeldSlice], list[HeldSlice]]:
        """The messages to hand out, the slices that they are of, and the rest of the last slice, which waits on."""
        if not self._waiting:
            self._most = self._most if self._emptied else min(self._size, 2 * self._most)
        taken: list[HeldSlice] = []
        left: list[HeldSlice] = []
        rest: list[HeldSlice] = []
        while self._waiting and limit > 0:
            waiting = self._waiting.popleft()
            parts, rest = first_of([waiting.piece], limit)
            self._waiting.extendleft(_Waiting(piece, waiting.since) for piece in rest)
            left.append(waiting.piece)
            taken += parts
            limit -= sum(part.count for part in parts)
        count = sum(piece.count for piece in taken)
        self._served += count
        self._messages -= count
        return taken, left, rest

    def overdue(self, before: float) -> list[HeldSlice]:
        """Take out everything when anything has waited since before that moment."""
        if not any(waiting.since <= before for waiting in self._waiting):
            return []
        held = self.clear()
        self._most, self._served, self._emptied = max(1, min(self._most, self._served)), 0, True
        return held

    def clear(self) -> list[HeldSlice]:
        """Take out everything."""
        held = self.pieces
        self._waiting.clear()
        self._messages = 0
        return held
