"""The owners of shards: rendezvous hashing over the live consumers.

Each consumer finds the same answer alone. When one comes or goes only its own shards change hands (Thaler and
Ravishankar, "A name-based mapping scheme for rendezvous", 1996).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

__all__ = ["Ownership", "weight"]


class _Ranks(dict[int, int]):
    """How many of the members come before a consumer at each concurrency shard; found when it is first asked for."""

    def __init__(self, consumer: str, members: Sequence[str]) -> None:
        super().__init__()
        self._consumer, self._members = consumer, members

    def __missing__(self, number: int) -> int:
        own = weight(self._consumer, number)
        self[number] = rank = sum(weight(member, number) > own for member in self._members)
        return rank


class Ownership:
    """The concurrency shards that one consumer prefers, among those of all live consumers."""

    def __init__(self, consumer: str) -> None:
        self._consumer = consumer
        self._members: tuple[str, ...] = (consumer,)
        self.ranks: Mapping[int, int] = _Ranks(consumer, self._members)
        """How many consumers come before this one at a concurrency shard: 0 for its owner, 1 for the next in line."""

    def update(self, members: Sequence[str]) -> None:
        """Take note of the live consumers."""
        alive = tuple(sorted({*members, self._consumer}))
        if alive != self._members:
            self._members, self.ranks = alive, _Ranks(self._consumer, alive)

    @property
    def consumers(self) -> int:
        """How many are alive."""
        return len(self._members)

    def is_own(self, number: int) -> bool:
        """Return whether the concurrency shard is this consumer's."""
        return self.ranks[number] == 0


def weight(member: str, number: int) -> bytes:
    """Return what ranks the consumers of a shard: the same in all processes, and another order for each shard."""
    return blake2b(f"{number}:{member}".encode(), digest_size=8).digest()
