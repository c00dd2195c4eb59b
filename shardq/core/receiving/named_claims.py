"""Claims that have a name, by which another attempt or another process can repeat, extend or ack them.

The token of a claim follows from its name, and a store takes a token once. The messages of the first attempt are
entered into the decision log. Later attempts deliver those that are still held of them, and no others. Any process
that knows the name can extend and ack the claim without reading a body.

An application may come back to a claim in another run, such as a query that failed and was restarted. That counts as
one more delivery of its messages, and those that were delivered too often become dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from shardq.base.codec import BYTES
from shardq.base.log import Log
from shardq.core.browsing import find_parts, held_stored
from shardq.core.context.decision_log import DecisionLog
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import claim_patiently
from shardq.core.held import HeldSlice, count_of
from shardq.core.limits.queue_limits import check_unlimited
from shardq.core.receiving.delivery_filter import DeliveryFilter, is_expired
from shardq.core.receiving.named_claim_log import (
    BundlePosition,
    ClaimEntry,
    ClaimName,
    NamedSettling,
    Runs,
    Taken,
    among,
    in_order,
    neighbours,
    parts,
    places_of,
)
from shardq.core.settling.dead_letters import EXHAUSTED
from shardq.core.settling.engine import SettleEngine
from shardq.core.settling.events import record_claimed
from shardq.core.settling.moves import DeadLetters
from shardq.core.settling.operations import KEEP, share_returned
from shardq.core.settling.settle import release_selected, settle
from shardq.errors import LeaseLost
from shardq.storage.requests import Claim, Span

__all__ = ["NamedClaimResult", "NamedClaims"]

_log = Log(__name__)

_PREFIX = "shardq-claim:"


class NamedClaimResult(msgspec.Struct, frozen=True):
    """The messages that are still held under a claim, and how many its first attempt got."""

    held: list[HeldSlice]
    got: int


class NamedClaims:
    """The named claims of one queue. ``memory`` is for how long what they got is known, in microseconds."""

    def __init__(self, context: QueueContext, *, lease: int, memory: int) -> None:
        self.context, self._lease, self._memory = context, lease, memory
        self._decisions = DecisionLog(context, _PREFIX)
        self._filter = DeliveryFilter(context, by_name=True)  # an ack finishes all that a claim holds
        self._runs = Runs(self._decisions, memory)
        self._settling = NamedSettling(context, self._decisions, self._runs)

    def take(
        self, claim: ClaimName, limit: int, *, owner: str, strict: bool, run: str = ""
    ) -> NamedClaimResult:
        """Claim up to ``limit`` messages, or find those that the claim got before, less those that were lost.

        A ``run`` names what all attempts of one run have in common; without a name nothing is counted but the first
        delivery. The deliveries of a later run are in the slices, not in the store. When it is strict, LeaseLost is
        raised where another holder has some of them by now. Raises InvalidSetting when the queue has limits.
        """
        check_unlimited(self.context.name, self.context.settings)
        self.context.live.use()
        request = Claim(claim.shard, claim.token, limit, self._lease, owner)
        claimed = claim_patiently(self.context.retry, self.context.store, request)
        found = [HeldSlice(claim.shard, piece, claim.token, claimed.lease_until) for piece in claimed.slices]
        share_returned(found)
        held = list(filter(_is_readable, found))
        record_claimed(self.context, owner, held)
        if not self._was_handed_out(claim, held):
            held = self._filter.deliverable(held, self.context.settings)
        offered = ClaimEntry(run, list(map(Taken.of, held)))
        entry = ClaimEntry.read(self._decisions.decide(claim.key, offered.text, self._memory).value)
        if entry.taken != offered.taken:
            seen = places_of(map(Taken.of, found))
            places = [place for place in in_order(entry.taken) if place not in seen]
            held = self._still_held([*held, *self._untold(claim, places)], entry.taken)
        given_up: set[BundlePosition] = set()
        if run not in ("", entry.run):
            held, given_up = self._delivered_again(claim, run, held)
        got = sum(taken.count for taken in entry.taken)
        if got > len(given_up) + count_of(held):
            known = given_up | places_of(map(Taken.of, held))
            missing = [place for place in in_order(entry.taken) if place not in known]
            self._report_missing(claim, missing, strict=strict)
        self.context.counters.add(received=count_of(held))
        return NamedClaimResult(held, got)

    def is_any_made(self, claims: Sequence[ClaimName]) -> bool:
        """Return True if an attempt at any of the claims has been made, whether it got messages or not."""
        return any(entry is not None for entry in self._decisions.read([claim.key for claim in claims]))

    def extend(self, claims: Sequence[ClaimName]) -> int:
        """Hold the messages of the claims for another lease; returns how many another holder has.

        Longer extensions by an application stay.
        """
        return self._settling.extend(claims, self._lease)

    def ack(self, claims: Sequence[ClaimName]) -> int:
        """Finish the messages of the claims; returns how many another holder has. Repeating it is harmless.

        Messages that were given up by their receipt, and block their groups, stay. Messages that were moved elsewhere
        are done.
        """
        lost = self._settling.ack(claims)
        self.context.counters.add(lease_lost=lost)
        return lost

    def _was_handed_out(self, claim: ClaimName, held: Sequence[HeldSlice]) -> bool:
        """Return whether an earlier attempt got expired messages: their holder may still work on them."""
        if not any(is_expired(self.context, piece.bundle) for piece in held):
            return False
        (entry,) = self._decisions.read([claim.key])
        return entry is not None

    def _still_held(self, held: Sequence[HeldSlice], recorded: Sequence[Taken]) -> list[HeldSlice]:
        """Return the messages that the first attempt got and that are held since.

        Others that are held now are released uncounted. So are those that were lost and came back: an attempt in
        between, maybe the one that counts, left them out.
        """
        pieces: dict[bytes, list[HeldSlice]] = {}
        for piece in held:
            pieces.setdefault(piece.bundle.id, []).append(piece)
        kept = [part for taken in recorded for part in parts(pieces.get(taken.bundle_id, ()), taken)]
        self._return_uncounted(held, kept)
        return kept

    def _untold(self, claim: ClaimName, places: Sequence[BundlePosition]) -> list[HeldSlice]:
        """Find messages that are held under the claim, though the store did not report them.

        A store may have forgotten a claim after a while, or others got ahead of each of its looks. It is given out too,
        as an ack finishes it.
        """
        if not places:
            return []
        spans = tuple(neighbours(places, claim.token))
        fenced = settle(self.context, KEEP, claim.shard, spans, self._lease).value
        away = places_of((*fenced.lost, *fenced.gone))
        return self._read(claim, neighbours([place for place in places if place not in away], claim.token))

    def _read(self, claim: ClaimName, spans: Sequence[Span]) -> list[HeldSlice]:
        """Read the messages that the spans name, as far as they are held."""
        held = (
            held_stored(claim.shard, piece).part(span.first - piece.first, span.count)
            for span, piece in find_parts(self.context, claim.shard, spans)
            if piece.token == claim.token
        )
        return list(filter(_is_readable, held))

    def _delivered_again(
        self, claim: ClaimName, run: str, held: Sequence[HeldSlice]
    ) -> tuple[list[HeldSlice], set[BundlePosition]]:
        """Count this run of the claim; returns the messages to deliver, and all that became dead letters."""
        number, taken = self._runs.count(claim.key, run, held, self.context.settings.max_deliveries)
        given_up = places_of(taken)
        for piece in held:
            piece.deliveries += number - 1
        if given_up:
            over = [among(piece, given_up) for piece in held]
            with suppress(LeaseLost):  # whoever has it now will do the same
                SettleEngine(self.context, BYTES).move(over, DeadLetters(self.context, EXHAUSTED))
        left = [part for piece in held for part in piece.held_parts]
        for piece in left:
            piece.deliveries += 1
        return left, given_up

    def _report_missing(self, claim: ClaimName, places: Sequence[BundlePosition], *, strict: bool) -> None:
        """Report messages that are held no longer, except those that block their groups."""
        found = find_parts(self.context, claim.shard, neighbours(places, claim.token))
        missing = len(places) - sum(span.count for span, piece in found if piece.blocks)
        if not missing:
            return
        self.context.counters.add(lease_lost=missing)
        text = (
            f"{missing} messages of shard {claim.shard} that an earlier attempt had received are held no longer: they "
            "were settled by their receipts, or their lease was over; raise the lease then"
        )
        if strict:
            raise LeaseLost(text)
        _log.warning("%s", text)

    def _return_uncounted(self, held: Sequence[HeldSlice], kept: Sequence[HeldSlice]) -> None:
        wanted = places_of(map(Taken.of, kept))
        release_selected(self.context, [piece.select().without(among(piece, wanted)) for piece in held])


def _is_readable(piece: HeldSlice) -> bool:
    """Return False for a slice that is damaged in the store: it is held, outside the claim, until its lease expires."""
    if piece.damage is not None:
        _log.error("%s", piece.damage)
    return piece.damage is None
