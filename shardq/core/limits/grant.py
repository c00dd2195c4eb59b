"""The permits of messages in flight: held for as long as the messages, and given back when they are settled."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from shardq.core.limits.permits import Permits
from shardq.core.limits.windows import units
from shardq.held import HeldSlice, count_of, first_of

__all__ = ["Grant", "permit_lease"]

_SECOND = 1_000_000


def permit_lease(lease: int) -> int:
    """For how long permits are held for messages with such a lease, in microseconds: longer than the messages.

    Claiming may take half of a lease, and the lease of a message begins last.
    """
    return lease + lease // 2 + _SECOND


class Grant:
    """The permits of some messages that were claimed together, each for up to ``weight`` messages. Safe for threads."""

    def __init__(self, permits: Permits, held: Sequence[HeldSlice], weight: int, messages: int) -> None:
        self._permits, self._held, self._weight = permits, list(held), weight
        self._messages = messages  # that are held
        self.counting = threading.Lock()
        # Held while permits are extended: what is given back meanwhile seems lost.
        self._changing = threading.Lock()

    def settled(self, messages: int) -> None:
        """So many messages more are held no longer. Whoever calls it holds :attr:`counting`."""
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

    def give_back(self) -> None:
        """Give back the permits that no message needs any more."""
        with self._changing:
            self._held, surplus = first_of(self._held, units(self._messages, self._weight))
        if surplus:
            self._permits.give_back(surplus)
