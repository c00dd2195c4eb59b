"""Whose shard is whose: rendezvous hashing over the live consumers.

Each consumer finds the same answer by itself, and when one comes or goes only its own shards change hands
(Thaler and Ravishankar, "A name-based mapping scheme for rendezvous", 1996).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

__all__ = ["Ownership", "weight"]


class Ownership:
    """The concurrency shards that one consumer prefers, among those of all live consumers."""

    def __init__(self, consumer: str) -> None:
        self._consumer = consumer
        self._members: tuple[str, ...] = (consumer,)
        self._places: dict[int, int] = {}

    def update(self, members: Sequence[str]) -> None:
        """Take note of who is alive."""
        alive = tuple(sorted({*members, self._consumer}))
        if alive != self._members:
            self._members, self._places = alive, {}

    @property
    def consumers(self) -> int:
        """How many are alive."""
        return len(self._members)

    def is_own(self, number: int) -> bool:
        """True when the concurrency shard is this consumer's."""
        return self.place(number) == 0

    def place(self, number: int) -> int:
        """How many consumers come before this one at the concurrency shard: 0 for its owner, 1 for the next in line."""
        place = self._places.get(number)
        if place is None:
            own = weight(self._consumer, number)
            place = sum(weight(member, number) > own for member in self._members)
            self._places[number] = place
        return place


def weight(member: str, number: int) -> bytes:
    """Return what ranks the consumers of a shard: the same in all processes, and another order for each shard."""
    return blake2b(f"{number}:{member}".encode(), digest_size=8).digest()
