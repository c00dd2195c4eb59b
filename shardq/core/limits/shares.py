"""What one read of a consumer may claim: permits of each limit, taken before it claims."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from shardq.core.context.queue_context import QueueContext
from shardq.core.limits.grant import Grant, permit_lease
from shardq.core.limits.permits import Permits
from shardq.core.limits.windows import units
from shardq.core.settling.settle import give_back_unseen
from shardq.errors import ShardqError
from shardq.held import HeldSlice, count_of, first_of

__all__ = ["Allowance", "InFlightShare", "RateShare", "Share", "TakeShare"]


class Share(Protocol):
    """Permits of one limit, taken for one read."""

    @property
    def messages(self) -> int:
        """How many messages may be claimed."""
        ...

    def cover(self, context: QueueContext, held: list[HeldSlice]) -> list[HeldSlice]:
        """Use permits for messages that were claimed, and return those that may be handed out."""
        ...

    def give_back(self) -> None:
        """Give back the permits that are not used."""
        ...


_log = logging.getLogger(__name__)

TakeShare: TypeAlias = Callable[[int], Share]
"""Takes permits for up to so many messages."""


class _Taken:
    """Permits of which nothing is used yet, each for up to ``weight`` messages."""

    def __init__(self, permits: Permits, held: list[HeldSlice], weight: int) -> None:
        self._permits, self._held, self._weight = permits, held, weight

    @property
    def messages(self) -> int:
        """How many messages may be claimed."""
        return count_of(self._held) * self._weight

    def give_back(self) -> None:
        """Give back the permits that are not used."""
        if self._held:
            unused, self._held = self._held, []
            self._permits.give_back(unused)

    def _use(self, messages: int) -> list[HeldSlice]:
        """Take out as many permits as so many messages need, and give back the others."""
        used, self._held = first_of(self._held, units(messages, self._weight))
        self.give_back()
        return used

    def _covered(self, context: QueueContext, held: list[HeldSlice], permits: int) -> list[HeldSlice]:
        """As many messages as permits are left for. The others are given back, and nobody had them.

        Those that the claim finished cannot be given back.
        """
        done = [piece for piece in held if piece.finished]
        room = permits * self._weight - count_of(done)
        kept, others = first_of([piece for piece in held if not piece.finished], max(0, room))
        if others:
            with suppress(ShardqError):  # they come back when their lease is over
                give_back_unseen(context, others)
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
            _log.warning("messages are given back, as their permits were not extended: %s", error)
            return []
        return [part for piece in used for part in piece.held_parts]


class RateShare(_Taken):
    """Permits that come back when a period is over since they were used."""

    def __init__(self, permits: Permits, held: list[HeldSlice], weight: int, period: int) -> None:
        super().__init__(permits, held, weight)
        self._period = period

    def cover(self, context: QueueContext, held: list[HeldSlice]) -> list[HeldSlice]:
        """Let the permits of these messages come back in a period from now: all of them were claimed before."""
        used = self._use(count_of(held))
        return self._covered(context, held, self._permits.spend(used, self._period) if used else 0)


class Allowance:
    """What one read may claim. What is not used of it is given back when the block ends, whatever happened."""

    def __init__(self, context: QueueContext, take: Sequence[TakeShare]) -> None:
        self._context, self._take = context, take
        self._shares: list[Share] = []
        self._granted: int | None = None

    def limit(self, messages: int) -> int:
        """How many of so many messages may be claimed. The permits for it are taken by the first call."""
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
            share.give_back()
