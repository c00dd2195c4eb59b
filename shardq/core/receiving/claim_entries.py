"""What the decision log says of a claim with a name: what it got, and which runs of an application came back to it.

The first run enters what it got. Each later one, such as a query that was restarted, enters itself in the next place,
and with it what it gives up: the messages that have had their deliveries. So a run is counted once, whatever attempts
it makes, and all attempts agree on what is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec

from shardq.base.shard import Shard
from shardq.core.context.decision_log import DecisionLog
from shardq.held import HeldSlice

__all__ = ["ClaimEntry", "ClaimName", "Runs", "Taken"]

COUNTED = 100  # runs, or the queue's max_deliveries if that is more
COUNTED_FOR_SHOW = 10  # where the queue has no max_deliveries


class ClaimName(msgspec.Struct, frozen=True):
    """A claim of one shard."""

    shard: Shard
    name: str

    @property
    def token(self) -> bytes:
        """The token of the claim in the store."""
        return blake2b(f"{self.name}\0{self.shard}".encode(), digest_size=16).digest()

    @property
    def key(self) -> str:
        """Its key in the decision log."""
        return f"{self.shard}:{self.token.hex()}"


class Taken(msgspec.Struct, array_like=True, frozen=True):
    """Messages ``first`` .. ``first + count - 1`` of a bundle."""

    bundle_id: bytes
    first: int
    count: int
    deliveries: int = 0  # as the store counts them; 0: an entry of before, which does not tell

    @classmethod
    def of(cls, piece: HeldSlice) -> Taken:
        """The messages of a slice."""
        return cls(piece.bundle.id, piece.first, piece.count, piece.deliveries)

    def is_before(self, piece: HeldSlice) -> bool:
        """True when the messages were lost since, and claimed anew: that counted one more delivery."""
        return 0 < self.deliveries < piece.deliveries


_decoder = msgspec.json.Decoder(list[Taken])


class ClaimEntry(msgspec.Struct, frozen=True):
    """What a run got under a claim if it is the first one, else what it gave up."""

    run: str
    taken: list[Taken]

    @classmethod
    def read(cls, text: str) -> ClaimEntry:
        """Read an entry as it is written."""
        run, _, taken = text.rpartition(" ")
        return cls(run, _decoder.decode(taken))

    @property
    def text(self) -> str:
        """The entry as it is written."""
        return f"{self.run} {msgspec.json.encode(self.taken).decode()}"


class Runs:
    """The runs that came back to claims, in the decision log under the claims' keys."""

    def __init__(self, decisions: DecisionLog, memory: int) -> None:
        self._decisions, self._memory = decisions, memory

    def count(
        self, key: str, run: str, held: Sequence[HeldSlice], max_deliveries: int | None
    ) -> tuple[int, list[Taken]]:
        """Count a run that is not the first; returns its number, from 1, and what it and those before it gave up.

        One request for each run so far. After ``COUNTED`` runs none is counted any more.
        """
        given_up: list[Taken] = []
        last = COUNTED_FOR_SHOW if max_deliveries is None else max(COUNTED, max_deliveries)
        for number in range(1, last + 1):
            over = [
                Taken.of(piece)
                for piece in held
                if max_deliveries is not None and piece.deliveries + number > max_deliveries
            ]
            own = ClaimEntry(run, over).text
            standing = ClaimEntry.read(self._decisions.decide(f"{key}:{number}", own, self._memory).value)
            given_up += standing.taken
            if standing.run == run:
                break
        return number, given_up

    def given_up(self, key: str) -> Iterator[Taken]:
        """What all runs gave up."""
        number = 1
        while (entry := self._decisions.read([f"{key}:{number}"])[0]) is not None:
            yield from ClaimEntry.read(entry.value).taken
            number += 1
