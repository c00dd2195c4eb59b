"""Named semaphores: a limited number of holders at a time, in all processes that use a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec

from shardq.base.clock import microseconds
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Retry
from shardq.core.held import HeldSlice, Selection, SettleState
from shardq.core.limits.permits import MOST_PERMITS, Permits, create_permits_queue, permits_queue
from shardq.core.limits.queue_limits import PermitPace
from shardq.core.settings import QueueSettings, check_number, warn_of_differences
from shardq.core.settling.leases import LeaseKeeper
from shardq.errors import InvalidSetting, PermitLost, PermitTimeout, QueueNotFound
from shardq.storage.listening import Waiter
from shardq.storage.per_process import PerProcess, forks
from shardq.storage.store import Store
from shardq.storage.writing import reporting_done

__all__ = [
    "PERMIT_LEASE_SECONDS",
    "Permit",
    "Semaphore",
    "SemaphoreState",
    "check_semaphore",
    "create_semaphore",
    "open_semaphore",
    "warn_of_other_permits",
]

PERMIT_LEASE_SECONDS = 30.0
_LONGEST_LEASE_SECONDS = 600.0  # a permit that was removed is made again after 15 minutes at the earliest
_LONGEST_WAIT_SECONDS = 365 * 86_400.0


class SemaphoreState(msgspec.Struct, frozen=True):
    """How many permits a semaphore has, and how many of them are held."""

    name: str
    permits: int
    held: int  # more than permits, for a while, after the number of permits was lowered
    lease: float  # seconds after which the permit of a holder that died comes back


class Semaphore:
    """A limited number of holders at a time, in all processes that use a store. Made by a :class:`~shardq.Client`.

    Safe for threads and in forked children. Waiting callers have no order. As a ``with`` block it takes a permit
    however long that takes; :meth:`acquire` waits for a limited time.

    >>> smtp = shardq.connect(url).semaphore("smtp", permits=16)
    >>> with smtp.acquire(timeout=10) as permit:
    ...     permit.lost
    False
    """

    def __init__(self, context: QueueContext, name: str) -> None:
        self.name, self._context = name, context
        self._permits = Permits(context, ConsumerIdentity.make())
        self._keeper = PerProcess(self._start_keeping)
        self._entered = _Entered()

    @property
    def permits(self) -> int:
        """How many holders there may be, at most a second old. Raises QueueNotFound when the semaphore was deleted."""
        return self._limit(self._context.settings)

    @property
    def lease(self) -> float:
        """Seconds after which the permit of a holder that died comes back."""
        return self._context.settings.visibility_timeout

    def acquire(self, timeout: float | None = None) -> Permit:
        """Take a permit; wait up to ``timeout`` seconds for it (None: for ever). With 0 it does not wait.

        The permit is held until it is released, or until the ``with`` block that it is used in ends. A thread extends
        its lease. If this process dies, it comes back when its lease expires.

        Raises PermitTimeout, QueueNotFound when the semaphore was deleted, StoreUnavailable or OutcomeUnknown. A
        permit that was taken before the error comes back when its lease expires.
        """
        if timeout is not None:
            check_number("timeout", timeout, 0.0, _LONGEST_WAIT_SECONDS)
        deadline = time.monotonic() + (_LONGEST_WAIT_SECONDS if timeout is None else timeout)
        retry = self._context.retry
        pace, waiter = PermitPace(), Waiter(self._context.store, lambda: retry.closed)
        while not (taken := self._take()):
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._timed_out()
            left = min(left, pace.until_next_poll(self._permits))
            retry(waiter.wait, (self._permits.queue,), left)
        return self._granted(taken)

    def _timed_out(self) -> PermitTimeout:
        return PermitTimeout(
            f"semaphore {self.name!r} has no free permit of {self.permits}: wait longer, or raise its permits"
        )

    def __enter__(self) -> Permit:
        """Take a permit for a ``with`` block of this thread; wait for it as long as it takes."""
        permit = self.acquire()
        self._entered.permits.append(permit)
        return permit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.permits.pop().__exit__(kind, error, trace)

    def alter(self, *, permits: int) -> None:
        """Change the number of permits, for all clients: a lower one within a second, a higher one within ten.

        Holders keep their permits: when there are fewer now, the surplus ones are not taken again after their release.
        """
        check_semaphore(permits)
        self._context.live.alter({"max_in_flight": permits})
        with reporting_done(lambda: "the number of permits is changed: repeat the call"):
            self._permits.make(permits)

    def state(self) -> SemaphoreState:
        """Count the permits, and those that are held now."""
        settings = self._context.live.refresh()
        return SemaphoreState(
            self.name, self._limit(settings), self._permits.held(), settings.visibility_timeout
        )

    def _take(self) -> list[HeldSlice]:
        settings = self._context.settings
        if settings.delivery_paused:
            return []
        taken = self._permits.take(1, self._limit(settings), microseconds(settings.visibility_timeout))
        now = self._context.store.now()
        return [held for held in taken if held.lease_until > now]  # this process may have stood still

    def _granted(self, taken: Sequence[HeldSlice]) -> Permit:
        self._keeper.get().keep(taken)
        return Permit(self.name, taken[0], self._context.store.now, self._release)

    def _limit(self, settings: QueueSettings) -> int:
        if settings.max_in_flight is None:
            raise InvalidSetting(
                f"{self.name!r} is not a semaphore: queue {self._context.name!r} has no max_in_flight"
            )
        return min(settings.max_in_flight, MOST_PERMITS)

    def _release(self, held: HeldSlice) -> bool:
        """Release the permit; False if it was lost, or if the store could not be reached."""
        self._keeper.get().leave([held])
        self._permits.release([held])
        return bool(held.positions(SettleState.RELEASED))

    def _start_keeping(self) -> LeaseKeeper:
        keeping = _Keeping(self._permits, self._context.retry)
        live = self._context.live
        return LeaseKeeper(keeping, self._context.retry, lambda: microseconds(live.known.visibility_timeout))

    def __repr__(self) -> str:
        return f"<Semaphore {self.name}>"


class Permit:
    """A permit of a semaphore, held until :meth:`release` or the end of its ``with`` block.

    Its lease is extended meanwhile. A process that stands still for longer than the lease loses its permits, as does
    one that cannot reach the store for so long. See :attr:`lost` and :meth:`check`.
    """

    def __init__(
        self, semaphore: str, held: HeldSlice, now: Callable[[], int], release: Callable[[HeldSlice], bool]
    ) -> None:
        self.semaphore, self._held, self._now, self._release = semaphore, held, now, release
        self._generation = forks.count

    @property
    def lost(self) -> bool:
        """True when the lease of the permit has expired, so that another holder may have it. Asks no store."""
        if self._held.positions(SettleState.RELEASED):
            return False
        return not self._held.open or self._now() >= self._held.lease_until

    def check(self) -> None:
        """Raise PermitLost when the permit is :attr:`lost`."""
        if self.lost:
            raise PermitLost(
                f"a permit of semaphore {self.semaphore!r} is lost: this process stood still, or could not reach the "
                "store, for longer than its lease, or the permit was removed"
            )

    def release(self) -> None:
        """Release the permit. May be repeated. In a forked child it does nothing: the permit is the parent's.

        Raises PermitLost when another holder may have had it meanwhile. If the store cannot be reached, the permit
        comes back when its lease expires.
        """
        if self._generation != forks.count or self._held.positions(SettleState.RELEASED):
            return
        if not self._release(self._held):
            self.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except PermitLost:
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"<Permit of {self.semaphore}>"


class _Entered(threading.local):
    """The permits of the ``with`` blocks that one thread is in, the innermost last."""

    def __init__(self) -> None:
        self.permits: list[Permit] = []


class _Keeping(msgspec.Struct, frozen=True):
    """Extends permits for a lease keeper, until the client is closed."""

    permits: Permits
    retry: Retry

    def keep(self, selections: Sequence[Selection], lease: int) -> None:
        """Hold permits for so long, or longer. Those that are lost are marked so."""
        self.retry.check_open()
        self.permits.hold([selection.held for selection in selections], lease)


def check_semaphore(permits: object, lease: object = PERMIT_LEASE_SECONDS) -> None:
    """Raise InvalidSetting unless a semaphore can have this number of permits, and this lease in seconds."""
    check_number("permits", permits, 1, MOST_PERMITS, whole=True)
    check_number("lease", lease, 0.05, _LONGEST_LEASE_SECONDS)


def warn_of_other_permits(semaphore: Semaphore, permits: int, lease: float | None) -> None:
    """Warn if the semaphore has another number of permits, or another lease, than the call gave that opened it."""
    what = f"semaphore {semaphore.name!r}"
    warn_of_differences(what, {"permits": semaphore.permits}, {"permits": permits}, "`alter` changes it")
    if lease is not None:
        remedy = f"delete the queue {permits_queue(semaphore.name)!r} to create it anew"
        warn_of_differences(what, {"lease": semaphore.lease}, {"lease": float(lease)}, remedy)


def create_semaphore(store: Store, retry: Retry, name: str, *, permits: int, lease: float) -> bool:
    """Create a semaphore if it is missing; True when it was."""
    settings = QueueSettings(visibility_timeout=float(lease), max_in_flight=permits)
    return create_permits_queue(store, retry, name, settings)


def open_semaphore(sibling: Callable[[str], QueueContext], name: str) -> Semaphore:
    """Open an existing semaphore. Raises InvalidName or QueueNotFound."""
    queue = permits_queue(name)
    try:
        return Semaphore(sibling(queue), name)
    except QueueNotFound:
        raise QueueNotFound(
            f"semaphore {name!r} does not exist (queue {queue!r}): create it with "
            f"client.semaphore({name!r}, permits=...), or `shardq semaphore {name} --permits ...`"
        ) from None
