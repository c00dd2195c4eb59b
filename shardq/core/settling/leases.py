"""Extending leases in the background, and ending those that a clock ahead has made too long.

Every live holder extends its lease. So each such lease is ended as long after now as it lasted. A live holder keeps
it, and the lease of a dead one expires.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Protocol
from weakref import WeakKeyDictionary

from shardq.base.clock import seconds
from shardq.base.log import Log
from shardq.base.shard import Shard
from shardq.base.waits import BackgroundThread, Flag
from shardq.core.browsing import held_stored, slices
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Retry
from shardq.core.held import HeldSlice, Selection, SettleState
from shardq.core.settling.operations import EXTEND
from shardq.core.settling.settle import SettleRun
from shardq.errors import Closed, ShardqError
from shardq.storage.requests import EntryState, Peek, StoredSlice

__all__ = ["JUMP", "Keeping", "LeaseKeeper", "LeaseKeepers", "shorten_fixed_leases", "shorten_leases"]

_log = Log(__name__)

_PAGE = 1_000
JUMP = 10_000_000
"""Microseconds by which something has to lie ahead of the clock before it is taken for a jump."""


def shorten_leases(
    context: QueueContext,
    found: Iterable[tuple[Shard, StoredSlice]],
    lasted: Callable[[StoredSlice], int | None],
) -> int:
    """Let leases end as long after now as they lasted; returns of how many messages.

    ``lasted`` is for how many microseconds a lease was begun; None of one that is right.
    """
    chosen = [
        (lease, held_stored(shard, piece).select())
        for shard, piece in found
        if piece.state is EntryState.IN_FLIGHT and (lease := lasted(piece)) is not None
    ]
    messages = 0
    for lease, group in groupby(sorted(chosen, key=lambda each: each[0]), key=lambda each: each[0]):
        messages += SettleRun(context, EXTEND, duration=lease).run([each for _, each in group]).done_count
    if messages:
        _log.warning(
            "the clock was ahead: %d leases of queue %s that were begun then end within %g seconds now",
            messages,
            context.name,
            seconds(max(lease for lease, _ in chosen)),
        )
    return messages


def shorten_fixed_leases(context: QueueContext, lease: int) -> int:
    """Shorten the leases of a queue in which all last ``lease`` microseconds; returns of how many messages."""
    latest = context.store.now() + lease + JUMP
    found = (
        (shard, piece)
        for shard in context.retry(context.store.shards, context.name)
        for piece in slices(context, Peek(shard, _PAGE, bodies=False, held=True))
    )
    return shorten_leases(context, found, lambda piece: lease if piece.due > latest else None)


class Keeping(Protocol):
    """An object that extends leases, such as a :class:`~shardq.core.settling.engine.SettleEngine`."""

    def keep(self, selections: Sequence[Selection], lease: int) -> None:
        """Hold messages for ``lease`` microseconds or longer, and mark those that are lost."""
        ...


class LeaseKeeper:
    """A thread that extends the leases of unsettled messages every third of a lease.

    It does not extend messages that the application has abandoned: those that it does not refer to any more, and those
    that it failed to settle before it received others. It ends with its process: when a worker dies, its leases expire
    and its messages are redelivered. The leases of a worker that hangs are extended.

    A shard that fails is tried after all others from then on, and repeated for a tenth of a lease at most.

    The thread ends when there has been nothing to extend for a third of a lease, and another one begins when there is.

    ``lease`` is for how long messages are held now, in microseconds. It follows the settings of their queue.
    """

    def __init__(self, engine: Keeping, retry: Retry, lease: Callable[[], int]) -> None:
        self._engine, self._retry, self._lease = engine, retry, lease
        self._paced_by = lease()
        self._lock = threading.Lock()
        self._held: WeakKeyDictionary[HeldSlice, frozenset[int]] = WeakKeyDictionary()  # abandoned positions
        self._stopped = False
        self._woken = Flag()  # before its time, to end or as leases are shorter by now
        self._thread = BackgroundThread("shardq-lease-keeper")

    @property
    def is_idle(self) -> bool:
        """True when there is nothing to extend."""
        return not self._held

    def keep(self, held: Iterable[HeldSlice]) -> None:
        """Extend these from now on, until they are settled or abandoned."""
        self.add(held)
        self.begin()

    def add(self, held: Iterable[HeldSlice]) -> None:
        """Extend these from the next :meth:`begin` on."""
        with self._lock:
            self._held.update(dict.fromkeys(held, frozenset()))

    def begin(self) -> None:
        """Start the thread, unless it runs or there is nothing to extend. Where none can start, the next call tries."""
        with self._lock:
            new = None if self.is_idle or self._stopped else self._thread.prepare(self._run)
        if new is not None and not self._thread.begin(new):
            _log.warning("leases are not extended, as no thread can be started: end other threads")
        if self._lease() < self._paced_by:
            self._woken.set()

    def leave(self, held: Iterable[HeldSlice]) -> None:
        """Stop extending these."""
        with self._lock:
            for piece in held:
                self._held.pop(piece, None)

    def abandon_failed(self) -> None:
        """Extend nothing more of what could not be settled."""
        with self._lock:
            self._held.update({piece: piece.failed for piece in self._held})

    def stop(self) -> None:
        """Extend nothing more."""
        with self._lock:
            self._stopped = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while self._has_work():
            self._paced_by = self._lease()
            if not self._woken.wait(max(0.0, began + seconds(self._paced_by) / 3 - time.monotonic())):
                began = time.monotonic()
                self.extend()
            self._woken.clear()

    def _has_work(self) -> bool:
        """Return whether the thread continues; else another one can begin."""
        with self._lock:
            if self.is_idle or self._stopped:
                self._thread.forget()
            return self._thread.is_current

    def extend(self) -> None:
        """Extend them all once; refers to none of them afterwards."""
        lease = self._lease()
        with self._lock:
            for piece in [piece for piece in self._held if not piece.open]:
                del self._held[piece]
            selections = [
                Selection(
                    piece,
                    [position for position in piece.positions(SettleState.OPEN) if position not in left],
                )
                for piece, left in self._held.items()
            ]
        try:
            with self._retry.within(seconds(lease) / 10), self._retry.unless(lambda: self._stopped):
                self._engine.keep([selection for selection in selections if selection.positions], lease)
        except Closed:  # the client is, so nobody can settle them any more
            self._stopped = True
        except ShardqError as error:
            if not self._stopped:
                _log.warning("some leases were not extended, trying again: %s", error)


class LeaseKeepers:
    """A lease keeper for each queue of which messages are held. ``make`` makes that of a queue."""

    def __init__(self, make: Callable[[str], LeaseKeeper]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._stopped = False
        self._keepers: Mapping[str, LeaseKeeper] = {}

    def keep(self, held: Sequence[HeldSlice]) -> None:
        """Extend these, which are of one queue, until they are settled or abandoned. Nothing after :meth:`stop`."""
        if not held:
            return
        queue = held[0].shard.queue
        with self._lock:
            if self._stopped:
                return
            if queue not in self._keepers:
                busy = {name: keeper for name, keeper in self._keepers.items() if not keeper.is_idle}
                self._keepers = {**busy, queue: self._make(queue)}
            keeper = self._keepers[queue]
            keeper.add(held)
        keeper.begin()

    def leave(self, held: Sequence[HeldSlice]) -> None:
        """Stop extending these, which are of one queue."""
        if held and (keeper := self._keepers.get(held[0].shard.queue)) is not None:
            keeper.leave(held)

    def abandon_failed(self) -> None:
        """Extend nothing more of what could not be settled."""
        for keeper in self._keepers.values():
            keeper.abandon_failed()

    def stop(self) -> None:
        """Extend nothing more."""
        with self._lock:
            self._stopped = True
        for keeper in self._keepers.values():
            keeper.stop()
