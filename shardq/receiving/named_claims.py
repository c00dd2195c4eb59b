"""Claims that have a name, by which another attempt or another process can repeat, extend or ack them.

The token of a claim follows from its name, and a store takes a token once. What the first attempt got is entered into
the decision log; later attempts deliver just that: what is still held of it, and nothing else. Whoever knows the name
can extend and ack the claim without reading a body.

An application may come back to a claim in another run, such as a query that failed and was restarted. That counts as
one more delivery of what it holds, and what was delivered too often becomes a dead letter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import blake2b

import msgspec

from shardq.browsing import blocked_in, find_parts
from shardq.codec import BYTES
from shardq.context.blocked import is_blocked
from shardq.context.decision_log import DecisionLog
from shardq.context.patient_claims import claim_patiently
from shardq.context.queue_context import QueueContext
from shardq.context.retry import Failures
from shardq.errors import LeaseLost
from shardq.held import HeldSlice, Selection, SettleState, count_of, held_unseen
from shardq.limits.queue_limits import check_unlimited
from shardq.receiving.claim_entries import ClaimEntry, Runs, Taken
from shardq.receiving.delivery_filter import DeliveryFilter, is_expired
from shardq.settling.blocking import may_block
from shardq.settling.dead_letters import EXHAUSTED
from shardq.settling.moves import DeadLetters
from shardq.settling.settle import Settling, by_shard, give_back_selected, settle, spans_of
from shardq.settling.settlement import Settlement
from shardq.settling.telling import tell_claimed
from shardq.settling.verbs import ACK, KEEP, Verb
from shardq.sharding.shard import Shard
from shardq.storage.requests import Claim, ClaimedSlice, EntryState, Span

__all__ = ["CLAIMS_AT_ONCE", "ClaimName", "NamedClaims", "Taking"]

_log = logging.getLogger(__name__)

CLAIMS_AT_ONCE = 8
"""How many claims are settled together. What they got is kept in memory, in the worst case a span for each message."""

SETTLED_AT_ONCE = 4
"""How many times that many, by threads of their own."""

_PREFIX = "shardq-claim:"


class ClaimName(msgspec.Struct, frozen=True):
    """A claim of one shard."""

    shard: Shard
    name: str

    @property
    def token(self) -> bytes:
        """The token of the claim in the store."""
        return blake2b(f"{self.name}\0{self.shard}".encode(), digest_size=16).digest()


_Place = tuple[bytes, int]  # a bundle, and a message in it
_Group = Sequence[ClaimName]
_Settled = tuple[list[Selection], Failures]  # what is lost, and what failed


class Taking(msgspec.Struct, frozen=True):
    """What is still held under a claim, and how many messages its first attempt got."""

    held: list[HeldSlice]
    got: int


class NamedClaims:
    """The named claims of one queue. ``memory`` is for how long what they got is known, in microseconds."""

    def __init__(self, context: QueueContext, *, lease: int, memory: int) -> None:
        self._context, self._lease, self._memory = context, lease, memory
        self._decisions = DecisionLog(context, _PREFIX)
        self._filter = DeliveryFilter(context, by_name=True)  # an ack finishes all that a claim holds
        self._runs = Runs(self._decisions, memory)

    def take(self, claim: ClaimName, limit: int, *, owner: str, strict: bool, run: str = "") -> Taking:
        """Claim up to so many messages, or find those that the claim got before, less what was lost of them.

        A ``run`` names what all attempts of one run have in common; without a name nothing is counted but the first
        delivery. The deliveries of a later run are in the slices, not in the store. When it is strict, LeaseLost is
        raised where anything of them is somebody else's by now. Raises InvalidSetting when the queue has limits.
        """
        check_unlimited(self._context.name, self._context.settings)
        self._context.live.use()
        claimed = claim_patiently(self._context, Claim(claim.shard, claim.token, limit, self._lease, owner))
        found = [HeldSlice(claim.shard, piece, claim.token, claimed.lease_until) for piece in claimed.slices]
        held, blocking = self._without_blocking(list(filter(_is_readable, found)))
        tell_claimed(self._context, owner, held)
        if not self._was_handed_out(claim, held):
            held = self._filter.deliverable(held, self._context.settings)
        offered = ClaimEntry(run, list(map(Taken.of, held)))
        entry = ClaimEntry.read(self._decisions.decide(_key(claim), offered.text, self._memory).value)
        if entry.taken != offered.taken:
            told = _places(map(Taken.of, found))
            places = [place for place in _in_order(entry.taken) if place not in told]
            untold, more = self._untold(claim, places)
            held, blocking = self._still_held([*held, *untold], entry.taken), blocking + more
        given_up: set[_Place] = set()
        if run not in ("", entry.run):
            held, given_up = self._delivered_again(claim, run, held)
        got = sum(taken.count for taken in entry.taken)
        missing = got - len(given_up) - blocking - count_of(held)
        if missing > 0:
            self._tell_missing(claim, missing, strict=strict)
        self._context.counters.add(received=count_of(held))
        return Taking(held, got)

    def extend(self, claims: Sequence[ClaimName]) -> int:
        """Hold for another lease what the claims got; returns how many messages are somebody else's.

        What an application extended for longer stays so.
        """
        return _count(self._settle(claims, KEEP, self._lease))

    def ack(self, claims: Sequence[ClaimName]) -> int:
        """Finish what the claims got; returns how many messages are somebody else's. Repeating it is harmless.

        What was given up by its receipt, and blocks its group, stays. What was moved elsewhere is done.
        """
        away = self._without_given_up(claims, self._settle(claims, ACK))
        lost = self._count_stored(away)
        self._context.counters.add(lease_lost=lost)
        return lost

    def _without_blocking(self, held: Sequence[HeldSlice]) -> tuple[list[HeldSlice], int]:
        """What is held without what was given up by its receipt, and blocks its group; and how many messages do."""
        blocking = 0
        for each in self._blocking([piece.select() for piece in held]):
            each.held.mark(each.positions, SettleState.RELEASED)
            blocking += len(each.positions)
        return [part for piece in held for part in piece.held_parts], blocking

    def _blocking(self, selections: Sequence[Selection]) -> list[Selection]:
        """Those of the messages that block their groups, in selections of the same slices."""
        shards = {each.held.shard for each in selections}
        places = {
            (piece.bundle.id, piece.first + place)
            for shard in shards
            if may_block(self._context, shard)
            for piece in blocked_in(self._context, shard, bodies=False)
            for place in range(piece.count)
        }
        return [_among(each.held, places, each.positions) for each in selections]

    def _was_handed_out(self, claim: ClaimName, held: Sequence[HeldSlice]) -> bool:
        """True when an earlier attempt got what has expired since: whoever holds it may still work on it."""
        if not any(is_expired(self._context, piece.bundle) for piece in held):
            return False
        (entry,) = self._decisions.read([_key(claim)])
        return entry is not None

    def _still_held(self, held: Sequence[HeldSlice], standing: Sequence[Taken]) -> list[HeldSlice]:
        """The messages that the first attempt got and that are held since. Others that are held now are given back.

        So are those that were lost and came back: an attempt in between, maybe the one that counts, left them out.
        """
        pieces: dict[bytes, list[HeldSlice]] = {}
        for piece in held:
            pieces.setdefault(piece.bundle.id, []).append(piece)
        kept = [part for taken in standing for part in _parts(pieces.get(taken.bundle_id, ()), taken)]
        self._give_back(held, kept)
        return kept

    def _untold(self, claim: ClaimName, places: Sequence[_Place]) -> tuple[list[HeldSlice], int]:
        """What of the messages is held under the claim, though the store did not tell of it; and how many more block.

        A store may have forgotten a claim after a while, or others got ahead of each of its looks. It is given out too,
        as an ack finishes it.
        """
        if not places:
            return [], 0
        spans = tuple(_spans(places, claim.token))
        fenced = settle(self._context, KEEP, claim.shard, spans, self._lease).value
        away = _places((*fenced.lost, *fenced.gone))
        return self._read(claim, _spans([place for place in places if place not in away], claim.token))

    def _read(self, claim: ClaimName, spans: Sequence[Span]) -> tuple[list[HeldSlice], int]:
        """The messages that the spans name, as far as they are held and can be read; and how many more block."""
        held: list[HeldSlice] = []
        blocking = 0
        for span, piece in find_parts(self._context, claim.shard, spans):
            if piece.token != claim.token:
                continue
            taken = ClaimedSlice(piece.bundle, span.first, span.count, piece.deliveries)
            if is_blocked(piece):
                blocking += span.count
            elif _is_readable(part := HeldSlice(claim.shard, taken, claim.token, piece.due)):
                held.append(part)
        return held, blocking

    def _delivered_again(
        self, claim: ClaimName, run: str, held: Sequence[HeldSlice]
    ) -> tuple[list[HeldSlice], set[_Place]]:
        """Count this run of the claim; returns what it is to deliver, and all that became dead letters."""
        number, taken = self._runs.count(_key(claim), run, held, self._context.settings.max_deliveries)
        given_up = _places(taken)
        for piece in held:
            piece.deliveries += number - 1
        if given_up:
            over = [_among(piece, given_up) for piece in held]
            with suppress(LeaseLost):  # whoever has it now will do the same
                Settlement(self._context, BYTES).move(over, DeadLetters(self._context, EXHAUSTED))
        left = [part for piece in held for part in piece.held_parts]
        for piece in left:
            piece.deliveries += 1
        return left, given_up

    def _tell_missing(self, claim: ClaimName, missing: int, *, strict: bool) -> None:
        self._context.counters.add(lease_lost=missing)
        text = (
            f"{missing} messages of shard {claim.shard} that an earlier attempt had received are held no longer: they "
            "were settled by their receipts, or their lease was over; raise the lease then"
        )
        if strict:
            raise LeaseLost(text)
        _log.warning("%s", text)

    def _without_given_up(self, claims: Sequence[ClaimName], lost: Sequence[Selection]) -> list[Selection]:
        """The lost messages that did not become dead letters in a later run of their claims."""
        keys = {claim.token: _key(claim) for claim in claims}
        given_up = {
            token: _places(self._runs.given_up(keys[token])) for token in {s.held.token for s in lost}
        }
        return [s.without(_among(s.held, given_up[s.held.token], s.positions)) for s in lost]

    def _count_stored(self, lost: Sequence[Selection]) -> int:
        """How many of the messages are in the queue."""
        return sum(
            span.count
            for shard, some in by_shard(lost).items()
            for span, piece in find_parts(self._context, shard, spans_of(some))
            if piece.state is not EntryState.PROCESSED
        )

    def _give_back(self, held: Sequence[HeldSlice], kept: Sequence[HeldSlice]) -> None:
        wanted = {(part.bundle.id, part.first + place) for part in kept for place in range(part.count)}
        give_back_selected(
            self._context,
            [
                Selection(
                    piece,
                    [
                        place
                        for place in range(piece.count)
                        if (piece.bundle.id, piece.first + place) not in wanted
                    ],
                )
                for piece in held
            ],
        )

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
        got = self._got(claims)
        if verb is ACK:
            got = [each.without(left) for each, left in zip(got, self._blocking(got), strict=True)]
        settling.run(got)
        return settling.lost, settling.failures

    def _got(self, claims: Sequence[ClaimName]) -> list[Selection]:
        """What the claims got."""
        entries = self._decisions.read([_key(claim) for claim in claims])
        return [
            held_unseen(claim.shard, Span(taken.bundle_id, taken.first, taken.count, claim.token)).select()
            for claim, entry in zip(claims, entries, strict=True)
            for taken in (ClaimEntry.read(entry.value).taken if entry is not None else ())
        ]


def _is_readable(piece: HeldSlice) -> bool:
    """False for what is damaged in the store: it stays held until its lease is over, and is no part of the claim."""
    if piece.damage is not None:
        _log.error("%s", piece.damage)
    return piece.damage is None


def _at_once(settle: Callable[[_Group], _Settled], groups: Sequence[_Group]) -> Iterator[_Settled]:
    if len(groups) < 2:
        yield from map(settle, groups)
        return
    with ThreadPoolExecutor(SETTLED_AT_ONCE, thread_name_prefix="shardq-settle") as pool:
        yield from pool.map(settle, groups)


def _key(claim: ClaimName) -> str:
    return f"{claim.shard}:{claim.token.hex()}"


def _count(selections: Sequence[Selection]) -> int:
    return sum(len(selection.positions) for selection in selections)


def _places(taken: Iterable[Taken | Span]) -> set[_Place]:
    return set(_in_order(taken))


def _in_order(taken: Iterable[Taken | Span]) -> Iterator[_Place]:
    return ((one.bundle_id, one.first + place) for one in taken for place in range(one.count))


def _spans(places: Iterable[_Place], token: bytes) -> list[Span]:
    """The messages as spans of neighbours, in their order."""
    spans: list[Span] = []
    for bundle_id, position in places:
        last = spans[-1] if spans else None
        if last and (last.bundle_id, last.first + last.count) == (bundle_id, position):
            spans[-1] = msgspec.structs.replace(last, count=last.count + 1)
        else:
            spans.append(Span(bundle_id, position, 1, token))
    return spans


def _among(piece: HeldSlice, places: set[_Place], positions: Iterable[int] | None = None) -> Selection:
    """Those of a slice's messages that are among the places."""
    own = range(piece.count) if positions is None else positions
    return Selection(piece, [place for place in own if (piece.bundle.id, piece.first + place) in places])


def _parts(held: Sequence[HeldSlice], taken: Taken) -> Iterator[HeldSlice]:
    """The parts of held slices of its bundle that an earlier attempt got."""
    for piece in held:
        if not taken.is_before(piece):
            start = max(piece.first, taken.first)
            end = min(piece.first + piece.count, taken.first + taken.count)
            if start < end:
                yield piece.part(start - piece.first, end - start)
