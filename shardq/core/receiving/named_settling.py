"""Extending and acking what claims with names got, by whoever knows their names, without reading a body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from shardq.core.browsing import find_parts
from shardq.core.context.decision_log import DecisionLog
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Failures
from shardq.core.receiving.claim_entries import ClaimEntry, ClaimName, Runs
from shardq.core.receiving.claim_places import among, places_of
from shardq.core.settling.settle import Settling, by_shard, spans_of
from shardq.core.settling.verbs import ACK, KEEP, Verb
from shardq.held import Selection, held_unseen
from shardq.storage.requests import EntryState, Span

__all__ = ["CLAIMS_AT_ONCE", "NamedSettling"]

CLAIMS_AT_ONCE = 8
"""How many claims are settled together. What they got is kept in memory, in the worst case a span for each message."""

SETTLED_AT_ONCE = 4
"""How many times that many, by threads of their own."""

_Group = Sequence[ClaimName]
_Settled = tuple[list[Selection], Failures]  # what is lost, and what failed


class NamedSettling:
    """Settles the named claims of one queue."""

    def __init__(self, context: QueueContext, decisions: DecisionLog, runs: Runs) -> None:
        self._context, self._decisions, self._runs = context, decisions, runs

    def extend(self, claims: Sequence[ClaimName], lease: int) -> int:
        """Hold what the claims got for so many microseconds; returns how many messages are somebody else's."""
        return sum(len(selection.positions) for selection in self._settle(claims, KEEP, lease))

    def ack(self, claims: Sequence[ClaimName]) -> int:
        """Finish what the claims got; returns how many messages are somebody else's."""
        return self._count_stored(self._without_given_up(claims, self._settle(claims, ACK)))

    def _settle(self, claims: Sequence[ClaimName], verb: Verb, duration: int = 0) -> list[Selection]:
        """Settle what the claims got, some claims at a time; returns what is lost.

        A shard that fails costs the others nothing; the error comes at the end.
        """
        lost, failures = list[Selection](), Failures()
        groups = [claims[start : start + CLAIMS_AT_ONCE] for start in range(0, len(claims), CLAIMS_AT_ONCE)]
        for away, failed in _at_once(partial(self._settle_group, verb, duration), groups):
            lost += away
            failures.take_over(failed)
        if failures:
            raise failures.error(f"claims of queue {self._context.name!r} were not settled")
        return lost

    def _settle_group(self, verb: Verb, duration: int, claims: _Group) -> _Settled:
        settling = Settling(self._context, verb, duration=duration, by_receipt=True)
        settling.run(self._got(claims))
        return settling.lost, settling.failures

    def _got(self, claims: Sequence[ClaimName]) -> list[Selection]:
        """What the claims got."""
        entries = self._decisions.read([claim.key for claim in claims])
        return [
            held_unseen(claim.shard, Span(taken.bundle_id, taken.first, taken.count, claim.token)).select()
            for claim, entry in zip(claims, entries, strict=True)
            for taken in (ClaimEntry.read(entry.value).taken if entry is not None else ())
        ]

    def _without_given_up(self, claims: Sequence[ClaimName], lost: Sequence[Selection]) -> list[Selection]:
        """The lost messages that did not become dead letters in a later run of their claims."""
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
