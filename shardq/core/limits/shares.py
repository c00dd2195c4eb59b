"""The share of one read of a consumer: permits of each limit, taken before it claims, and held with the messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self, TypeAlias

import msgspec

from shardq.base.log import Log
from shardq.base.rate import Rate
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import HeldSlice, count_of, first_of
from shardq.core.limits.permits import MOST_PERMITS, Permits
from shardq.core.settling.settle import release_uncounted
from shardq.errors import ShardqError

__all__ = [
    "Allowance",
    "Grant",
    "InFlightShare",
    "RateShare",
    "TakeShare",
    "Window",
    "permit_lease",
    "units",
]

_log = Log(__name__)

_SECOND = 1_000_000


def units(messages: int, weight: int) -> int:
    """Return how many permits this number of messages needs, when each is for up to ``weight`` of them."""
    return -(-messages // weight)


class Window(msgspec.Struct, frozen=True):
    """A number of permits, each for up to ``weight`` messages, which come back ``period`` microseconds after their use.

    There are at most 1,024 permits. Of a larger number each is for several messages. A larger rate is first divided
    over a shorter period, down to a second. 6,000 in a minute are 1,000 in ten seconds, which is stricter. Neither
    ever lets in more.

    >>> Window.of_rate(Rate.parse("6000/m"))
    Window(permits=1000, weight=1, period=10000000)
    >>> Window.of_number(2500)
    Window(permits=833, weight=3, period=0)
    """

    permits: int
    weight: int
    period: int

    @classmethod
    def of_number(cls, messages: int) -> Window:
        """Return the window for this number of messages at a time."""
        weight = units(messages, MOST_PERMITS)
        return cls(messages // weight, weight, 0)

    @classmethod
    def of_rate(cls, rate: Rate) -> Window:
        """Return the window for a rate."""
        parts = min(units(rate.messages, MOST_PERMITS), rate.seconds)
        whole = cls.of_number(rate.messages // parts)
        return cls(whole.permits, whole.weight, rate.seconds * _SECOND // parts)


def permit_lease(lease: int) -> int:
    """Return for how long permits are held for messages with such a lease, in microseconds: longer than the messages.

    Claiming may take half of a lease, and the lease of a message begins last.
    """
    return lease + lease // 2 + _SECOND


class Grant:
    """The permits of some messages that were claimed together, each for up to ``weight`` messages. Safe for threads."""

    def __init__(self, permits: Permits, held: Sequence[HeldSlice], weight: int, messages: int) -> None:
        self._permits, self._held, self._weight = permits, list(held), weight
        self._messages = messages  # that are held
        self.counting = threading.Lock()
        # Held while permits are extended: otherwise permits that are released meanwhile seem lost.
        self._changing = threading.Lock()

    def settled(self, messages: int) -> None:
        """Note that this number of messages more is held no longer. The caller holds :attr:`counting`."""
        self._messages -= messages

    def hold(self, lease: int) -> bool:
        """Hold the permits for as long as messages with such a lease; False when some are lost, and too few left.

        Raises the error of the store.
        """
        with self._changing:
            until = self._permits.now() + lease
            longest = until + permit_lease(lease)  # one that ends later was begun while the clock was ahead
            if any(not until <= piece.lease_until <= longest for piece in self._held):
                self._permits.hold(self._held, permit_lease(lease))
                self._held = [part for piece in self._held for part in piece.held_parts]
            return count_of(self._held) >= units(self._messages, self._weight)

    def release(self) -> None:
        """Release the permits that no message needs any more."""
        with self._changing:
            self._held, surplus = first_of(self._held, units(self._messages, self._weight))
        if surplus:
            self._permits.release(surplus)


class Share(Protocol):
    """Permits of one limit, taken for one read."""

    @property
    def messages(self) -> int:
        """How many messages may be claimed."""
        ...

    def cover(self, context: QueueContext, held: list[HeldSlice]) -> list[HeldSlice]:
        """Use permits for messages that were claimed, and return those that may be handed out."""
        ...

    def release(self) -> None:
        """Release the unused permits."""
        ...


TakeShare: TypeAlias = Callable[[int], Share]
"""Takes permits for up to this number of messages."""


class _Taken:
    """Permits of which nothing is used yet, each for up to ``weight`` messages."""

    def __init__(self, permits: Permits, held: list[HeldSlice], weight: int) -> None:
        self._permits, self._held, self._weight = permits, held, weight

    @property
    def messages(self) -> int:
        """How many messages may be claimed."""
        return count_of(self._held) * self._weight

    def release(self) -> None:
        """Release the unused permits."""
        if self._held:
            unused, self._held = self._held, []
            self._permits.release(unused)

    def _use(self, messages: int) -> list[HeldSlice]:
        """Take out as many permits as this number of messages needs, and release the others."""
        used, self._held = first_of(self._held, units(messages, self._weight))
        self.release()
        return used

    def _covered(self, context: QueueContext, held: list[HeldSlice], permits: int) -> list[HeldSlice]:
        """Keep as many messages as permits are left for.

        The others are released uncounted, except those that the claim finished.
        """
        done = [piece for piece in held if piece.finished]
        remaining = permits * self._weight - count_of(done)
        kept, others = first_of([piece for piece in held if not piece.finished], max(0, remaining))
        if others:
            with suppress(ShardqError):  # they come back when their lease expires
                release_uncounted(context, others)
        return done + kept


class InFlightShare(_Taken):
    """Permits that are held while messages are in flight."""

    def cover(self, context: QueueContext, held: list[HeldSlice]) -> list[HeldSlice]:
        """Hold permits for longer than the messages. Those that the claim finished are in flight no more."""
        done = [piece for piece in held if piece.finished]
        flying = [piece for piece in held if not piece.finished]
        used = self._use(count_of(flying))
        until = max((piece.lease_until for piece in flying), default=0)
        if any(piece.lease_until < until for piece in used):
            used = self._held_until(used, until)
            flying = self._covered(context, flying, count_of(used))
        grant = Grant(self._permits, used, self._weight, count_of(flying))
        for piece in flying:
            piece.grant = grant
        return done + flying

    def _held_until(self, used: list[HeldSlice], until: int) -> list[HeldSlice]:
        """Hold permits for longer than messages whose leases end then; returns those that are still held."""
        try:
            self._permits.hold(used, permit_lease(until - self._permits.now()))
        except ShardqError as error:  # not to be raised: messages that the claim finished would be lost
            _log.warning("messages are released, as their permits were not extended: %s", error)
            return []
        return [part for piece in used for part in piece.held_parts]


class RateShare(_Taken):
    """Permits that come back when a period has passed since they were used."""

    def __init__(self, permits: Permits, held: list[HeldSlice], weight: int, period: int) -> None:
        super().__init__(permits, held, weight)
        self._period = period

    def cover(self, context: QueueContext, held: list[HeldSlice]) -> list[HeldSlice]:
        """Let the permits of these messages come back in a period from now: all of them were claimed before."""
        used = self._use(count_of(held))
        return self._covered(context, held, self._permits.spend(used, self._period) if used else 0)


class Allowance:
    """The claims that one read may make. Unused permits are released when the block ends, also after an error."""

    def __init__(self, context: QueueContext, take: Sequence[TakeShare]) -> None:
        self._context, self._take = context, take
        self._shares: list[Share] = []
        self._granted: int | None = None

    def limit(self, messages: int) -> int:
        """Return how many of this number of messages may be claimed. The permits for it are taken by the first call."""
        if self._granted is None:
            self._granted = messages
            for take in self._take:
                self._shares.append(take(self._granted))
                self._granted = min(self._granted, self._shares[-1].messages)
                if not self._granted:
                    break
        return min(messages, self._granted)

    def cover(self, held: list[HeldSlice]) -> list[HeldSlice]:
        """Use permits for what was claimed, and return the messages that may be handed out."""
        for share in self._shares:
            held = share.cover(self._context, held)
        return held

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for share in self._shares:
            share.release()
