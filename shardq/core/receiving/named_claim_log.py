"""Named claims in the decision log: the messages of each, its runs, and settling by the name alone.

The first run enters its messages. Each later one, such as a query that was restarted, enters itself in the next place.
It enters also the messages that it gives up, which have had their deliveries. So a run is counted once, whatever
attempts it makes, and all attempts agree on what is delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b

import msgspec

from shardq.base.shard import Shard
from shardq.core.browsing import find_parts
from shardq.core.context.decision_log import DecisionLog
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Failures
from shardq.core.held import HeldSlice, Selection, held_unseen
from shardq.core.settling.operations import ACK, KEEP, SettleOperation
from shardq.core.settling.settle import SettleRun, by_shard, spans_of
from shardq.storage.requests import EntryState, Span

__all__ = [
    "CLAIMS_AT_ONCE",
    "BundlePosition",
    "ClaimEntry",
    "ClaimName",
    "NamedSettling",
    "Runs",
    "Taken",
    "among",
    "in_order",
    "neighbours",
    "parts",
    "places_of",
]

COUNTED = 100  # runs, or the queue's max_deliveries if that is more
COUNTED_FOR_SHOW = 10  # where the queue has no max_deliveries
CLAIMS_AT_ONCE = 8
"""How many claims are settled together. Their messages are kept in memory, in the worst case a span for each
message."""
SETTLED_AT_ONCE = 4
"""How many times that many, by threads of their own."""


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
    deliveries: int = 0  # as the store counts them; 0: an older entry, which does not have them

    @classmethod
    def of(cls, piece: HeldSlice) -> Taken:
        """Describe the messages of a slice."""
        return cls(piece.bundle.id, piece.first, piece.count, piece.deliveries)

    def is_before(self, piece: HeldSlice) -> bool:
        """Return whether the messages were lost since, and claimed anew: that counted one more delivery."""
        return 0 < self.deliveries < piece.deliveries


_decoder = msgspec.json.Decoder(list[Taken])


class ClaimEntry(msgspec.Struct, frozen=True):
    """The messages that a run got under a claim if it is the first one, else those that it gave up."""

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
            decided = ClaimEntry.read(self._decisions.decide(f"{key}:{number}", own, self._memory).value)
            given_up += decided.taken
            if decided.run == run:
                break
        return number, given_up

    def given_up(self, key: str) -> Iterator[Taken]:
        """Yield the messages that all runs gave up."""
        number = 1
        while (entry := self._decisions.read([f"{key}:{number}"])[0]) is not None:
            yield from ClaimEntry.read(entry.value).taken
            number += 1


BundlePosition = tuple[bytes, int]


def in_order(taken: Iterable[Taken | Span]) -> Iterator[BundlePosition]:
    """Yield the places of messages, in their order."""
    return ((one.bundle_id, one.first + place) for one in taken for place in range(one.count))


def places_of(taken: Iterable[Taken | Span]) -> set[BundlePosition]:
    """Return the places of messages, as a set."""
    return set(in_order(taken))


def neighbours(places: Iterable[BundlePosition], token: bytes) -> list[Span]:
    """Join the messages into spans of neighbours, in their order."""
    spans: list[Span] = []
    for bundle_id, position in places:
        last = spans[-1] if spans else None
        if last and (last.bundle_id, last.first + last.count) == (bundle_id, position):
            spans[-1] = msgspec.structs.replace(last, count=last.count + 1)
        else:
            spans.append(Span(bundle_id, position, 1, token))
    return spans


def among(piece: HeldSlice, places: set[BundlePosition], positions: Iterable[int] | None = None) -> Selection:
    """Select those of a slice's messages that are among the places."""
    own = range(piece.count) if positions is None else positions
    return Selection(piece, [place for place in own if (piece.bundle.id, piece.first + place) in places])


def parts(held: Iterable[HeldSlice], taken: Taken) -> Iterator[HeldSlice]:
    """Yield the parts of held slices of its bundle that an earlier attempt got."""
    for piece in held:
        if not taken.is_before(piece):
            start = max(piece.first, taken.first)
            end = min(piece.first + piece.count, taken.first + taken.count)
            if start < end:
                yield piece.part(start - piece.first, end - start)


_Group = Sequence[ClaimName]
_Settled = tuple[list[Selection], Failures]  # what is lost, and what failed


class NamedSettling:
    """Settles the named claims of one queue."""

    def __init__(self, context: QueueContext, decisions: DecisionLog, runs: Runs) -> None:
        self._context, self._decisions, self._runs = context, decisions, runs

    def extend(self, claims: Sequence[ClaimName], lease: int) -> int:
        """Hold the messages of the claims for ``lease`` microseconds. Returns how many another holder has."""
        return sum(len(selection.positions) for selection in self._settle(claims, KEEP, lease))

    def ack(self, claims: Sequence[ClaimName]) -> int:
        """Finish the messages of the claims; returns how many another holder has."""
        return self._count_stored(self._without_given_up(claims, self._settle(claims, ACK)))

    def _settle(
        self, claims: Sequence[ClaimName], operation: SettleOperation, duration: int = 0
    ) -> list[Selection]:
        """Settle the messages of the claims, some claims at a time; returns the lost ones.

        A shard that fails costs the others nothing; the error comes at the end.
        """
        lost, failures = list[Selection](), Failures()
        groups = [claims[start : start + CLAIMS_AT_ONCE] for start in range(0, len(claims), CLAIMS_AT_ONCE)]
        for away, failed in _at_once(partial(self._settle_group, operation, duration), groups):
            lost += away
            failures.take_over(failed)
        if failures:
            raise failures.error(f"claims of queue {self._context.name!r} were not settled")
        return lost

    def _settle_group(self, operation: SettleOperation, duration: int, claims: _Group) -> _Settled:
        settling = SettleRun(self._context, operation, duration=duration, by_receipt=True)
        settling.run(self._got(claims))
        return settling.lost, settling.failures

    def _got(self, claims: Sequence[ClaimName]) -> list[Selection]:
        """Return the messages that the claims got."""
        entries = self._decisions.read([claim.key for claim in claims])
        return [
            held_unseen(claim.shard, Span(taken.bundle_id, taken.first, taken.count, claim.token)).select()
            for claim, entry in zip(claims, entries, strict=True)
            for taken in (ClaimEntry.read(entry.value).taken if entry is not None else ())
        ]

    def _without_given_up(self, claims: Sequence[ClaimName], lost: Sequence[Selection]) -> list[Selection]:
        """Return the lost messages that did not become dead letters in a later run of their claims."""
        keys = {claim.token: claim.key for claim in claims}
        given_up = {
            token: places_of(self._runs.given_up(keys[token])) for token in {s.held.token for s in lost}
        }
        return [s.without(among(s.held, given_up[s.held.token], s.positions)) for s in lost]

    def _count_stored(self, lost: Sequence[Selection]) -> int:
        """Count the messages that are in the queue and block no group."""
        return sum(
            span.count
            for shard, some in by_shard(lost).items()
            for span, piece in find_parts(self._context, shard, spans_of(some))
            if piece.state is not EntryState.PROCESSED and not piece.blocks
        )


def _at_once(settle: Callable[[_Group], _Settled], groups: Sequence[_Group]) -> Iterator[_Settled]:
    if len(groups) < 2:
        yield from map(settle, groups)
        return
    with ThreadPoolExecutor(SETTLED_AT_ONCE, thread_name_prefix="shardq-settle") as pool:
        yield from pool.map(settle, groups)
