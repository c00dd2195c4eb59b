"""The messages that a consumer holds: slices of bundles, the state of each message, and selections of messages."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from shardq.base.large_body import LargeBody
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.errors import InvalidMessage
from shardq.storage.bundles import BundleData, decode_bundle
from shardq.storage.requests import Bundle, ClaimedSlice, Span, StoredSlice

__all__ = [
    "COUNT",
    "HeldSlice",
    "LimitLease",
    "NamedSpans",
    "Selection",
    "SettleState",
    "claimed_once",
    "count_of",
    "first_of",
    "held_unseen",
    "in_states",
]


class SettleState(IntEnum):
    """The state of a claimed message, as far as this process knows it."""

    OPEN = 0  # held, as far as this process knows
    FINISHED = 1  # acked, or moved elsewhere
    RELEASED = 2
    LOST = 3  # no longer held under its claim


_ALONE = tuple(bytes([state]) for state in SettleState)
_NOTHING: Mapping[Any, Any] = MappingProxyType({})
COUNT = attrgetter("count")
"""Of a slice: how many messages are in it. Where that is asked often, ``sum(map(COUNT, slices))`` calls nothing."""


class LimitLease(Protocol):
    """A lease on the permits of a limit, which must be held for as long as their messages are in flight."""

    counting: threading.Lock
    """Held while messages are marked and counted, so that two threads do not count one message twice."""

    def settled(self, messages: int) -> None:
        """Note that the given number of messages more is held no longer."""
        ...

    def hold(self, lease: int) -> bool:
        """Hold it for as long as messages with such a lease, in microseconds; False when it is lost."""
        ...

    def release(self) -> None:
        """Return the permits that no message needs any more."""
        ...


class HeldSlice:
    """Messages of one bundle under one claim. Positions are those within the slice, from 0."""

    failed: frozenset[int] = frozenset()  # positions whose settling failed, as was reported to the caller
    grant: LimitLease | None = None  # None: the queue has no limit
    unique_key: str | None = None  # of its only message, as far as it was looked at
    large: LargeBody | None = None  # the same
    untouched = True  # nothing of it is settled, as almost always
    incarnation = 0  # how often its queue had been created again, as far as was known before the claim
    returned: set[str] | None = None  # groups of its claim that were released from; None: no groups
    unanswered: Mapping[str, set[int]] = _NOTHING  # what was tried, and may have been done to which positions
    _untils: Mapping[int, int] = _NOTHING  # by position, of messages whose leases end at other moments

    def __init__(
        self, shard: Shard, claimed: ClaimedSlice, token: bytes, lease_until: int, *, started: bool = True
    ) -> None:
        self.shard = shard
        self.bundle = claimed.bundle
        self.first = claimed.first
        self.count = claimed.count
        self.deliveries = claimed.deliveries
        self.token = token
        self.span = Span(claimed.bundle.id, claimed.first, claimed.count, token)  # all of it
        self.lease_until = lease_until
        self.finished = claimed.finished  # by its claim: it was never held
        self.started = started  # False: the store does not count this delivery yet
        self._states = bytearray(claimed.count)
        if claimed.finished:
            self.untouched, self._states[:] = False, _ALONE[SettleState.FINISHED] * claimed.count

    @cached_property
    def messages(self) -> BundleData:
        """The bodies and headers; raises InvalidMessage when the stored bundle is damaged."""
        return decode_bundle(self.bundle.data, self.message_id(0)).slice(self.first, self.count)

    @property
    def damage(self) -> InvalidMessage | None:
        """The error of a bundle that is damaged in the store, where it is left for a person to inspect."""
        try:
            self.messages  # noqa: B018 - it is kept
        except InvalidMessage as error:
            return error
        return None

    def bodies(self, positions: Sequence[int]) -> Sequence[bytes]:
        """Return the bodies of messages, by position."""
        bodies = self.messages.bodies
        return bodies if len(positions) == self.count else [bodies[position] for position in positions]

    @property
    def known(self) -> bool:
        """False when only its place and its claim are known, as from a receipt."""
        return self.bundle.count > 0

    @property
    def open(self) -> bool:
        """True while any message is held."""
        return SettleState.OPEN in self._states

    def mark(self, positions: Sequence[int], state: SettleState) -> None:
        """Set the state of some messages. Safe for threads."""
        if self.grant is None:
            self._set_states(positions, state)
            return
        with self.grant.counting:
            self.grant.settled(len(self.in_states(positions, (SettleState.OPEN,))))
            self._set_states(positions, state)

    @staticmethod
    def mark_each(selections: Iterable[Selection], state: SettleState) -> None:
        """Set the state of selected messages, most of which are whole slices. Safe for threads."""
        for selection in selections:
            held: HeldSlice = selection.held
            if len(selection.positions) == held.count and held.grant is None:
                held.untouched = False
                held._states[:] = _ALONE[state] * held.count
            else:
                held.mark(selection.positions, state)

    def _set_states(self, positions: Sequence[int], state: SettleState) -> None:
        self.untouched = False
        for position in positions:
            self._states[position] = state

    def until(self, position: int) -> int:
        """Return when the lease of one of the messages ends, as far as is known."""
        return self._untils.get(position, self.lease_until)

    def is_lost(self, position: int, now: int) -> bool:
        """Return whether one of the messages is held no longer, as far as is known, or its lease has expired."""
        state = self._states[position]
        return now >= self.until(position) if state == SettleState.OPEN else state == SettleState.LOST

    def extended(self, positions: Sequence[int], until: int, *, shortens: bool) -> None:
        """Note until when some messages are held; unless it ``shortens``, a lease that ends later stays as it is."""
        is_all = len(positions) == self.count or set(self.positions(SettleState.OPEN)) <= set(positions)
        if is_all and not self._untils:
            self.lease_until = until if shortens else max(until, self.lease_until)
            return
        untils: dict[int, int] = self.__dict__.setdefault("_untils", {})
        untils |= {each: until if shortens else max(until, self.until(each)) for each in positions}

    def note_unanswered(self, what: str, positions: Iterable[int]) -> None:
        """Note an operation that was tried, and may have been done to some of the messages."""
        tried: dict[str, set[int]] = self.__dict__.setdefault("unanswered", {})
        tried.setdefault(what, set()).update(positions)

    def select(self, positions: Sequence[int] | None = None) -> Selection:
        """Select messages by their positions, in order; None: all that are open."""
        return Selection(self, self.positions(SettleState.OPEN) if positions is None else positions)

    def positions(self, *states: SettleState) -> Sequence[int]:
        """Return the positions of messages with one of these states, in order."""
        return self.in_states(range(self.count), states)

    def in_states(self, positions: Sequence[int], states: Sequence[SettleState]) -> Sequence[int]:
        """Select the positions whose messages have one of these states."""
        if self.untouched:
            return positions if SettleState.OPEN in states else ()
        return [position for position in positions if self._states[position] in states]

    def spans(self, positions: Sequence[int]) -> tuple[Span, ...]:
        """Return the spans of messages that a request names; positions are in order."""
        if len(positions) == self.count:
            return (self.span,)
        runs: list[tuple[int, int]] = []
        for position in positions:
            if runs and sum(runs[-1]) == position:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((position, 1))
        return tuple(Span(self.bundle.id, self.first + start, count, self.token) for start, count in runs)

    def covered(self, span: Span) -> set[int]:
        """Return the positions in this slice that a span names."""
        if span.bundle_id != self.bundle.id or span.token != self.token:
            return set()
        start, end = span.first - self.first, span.first + span.count - self.first
        return set(range(max(0, start), min(self.count, end)))

    def message_id(self, position: int) -> MessageId:
        """Return the id of one of the messages."""
        return MessageId(self.shard, self.bundle.id, self.first + position)

    def split(self, count: int) -> tuple[HeldSlice, HeldSlice]:
        """Split off the first messages, before any message of the slice is settled."""
        return self.part(0, count), self.part(count, self.count - count)

    def part(self, offset: int, count: int) -> HeldSlice:
        """Cut out neighbouring messages as another slice, before any of them is settled."""
        claimed = ClaimedSlice(self.bundle, self.first + offset, count, self.deliveries, self.finished)
        part = HeldSlice(self.shard, claimed, self.token, self.lease_until, started=self.started)
        part.grant, part.returned, part.incarnation = self.grant, self.returned, self.incarnation
        part._states[:] = self._states[offset : offset + count]
        part.untouched = part._states.count(SettleState.OPEN) == count
        untils = dict(self._untils).items()
        part._untils = {at - offset: until for at, until in untils if offset <= at < offset + count}
        part.unique_key, part.large = self.unique_key, self.large
        return part

    @property
    def held_parts(self) -> list[HeldSlice]:
        """The messages that are open: this slice itself if they are all, else slices of their own."""
        held = self.positions(SettleState.OPEN)
        if len(held) == self.count:
            return [self]
        return [self.part(span.first - self.first, span.count) for span in self.spans(held)] if held else []


class NamedSpans:
    """The messages that spans name, by bundle and claim: there may be thousands of both spans and slices."""

    def __init__(self, *spans: Span) -> None:
        self._spans: dict[tuple[bytes, bytes], list[Span]] = {}
        for span in spans:
            self._spans.setdefault((span.bundle_id, span.token), []).append(span)

    def of(self, held: HeldSlice) -> Sequence[Span]:
        """Return the spans of a slice's bundle and claim."""
        return self._spans.get((held.bundle.id, held.token), ())


class Selection(msgspec.Struct, frozen=True):
    """Some messages of one held slice, by position, in order."""

    held: HeldSlice
    positions: Sequence[int]

    def in_states(self, *states: SettleState) -> Selection:
        """Select the messages that had one of these states."""
        return Selection(self.held, self.held.in_states(self.positions, states))

    @property
    def lease_until(self) -> int | None:
        """When the first lease of those that are held ends, or else that of the others; None of no messages."""
        held = self.in_states(SettleState.OPEN).positions
        return min(map(self.held.until, held or self.positions), default=None)

    def expired(self, now: int) -> Selection:
        """Select the messages whose leases have expired."""
        held = self.held
        return Selection(held, [each for each in self.positions if now > held.until(each)])

    def within(self, named: NamedSpans) -> Selection:
        """Select the messages that spans name."""
        positions: set[int] = set().union(*(self.held.covered(span) for span in named.of(self.held)))
        return Selection(self.held, [position for position in self.positions if position in positions])

    @property
    def neighbours(self) -> list[Selection]:
        """The same messages in selections of neighbouring ones."""
        held = self.held
        starts = [(span.first - held.first, span.count) for span in held.spans(self.positions)]
        return [Selection(held, list(range(start, start + count))) for start, count in starts]

    def joined(self, other: Selection) -> Selection:
        """Add the messages of another selection of the same slice."""
        return Selection(self.held, sorted({*self.positions, *other.positions}))

    def without(self, other: Selection) -> Selection:
        """Leave out the messages of another selection of the same slice."""
        if not other.positions:
            return self
        excluded = set(other.positions)
        return Selection(self.held, [position for position in self.positions if position not in excluded])


def in_states(selections: Iterable[Selection], *states: SettleState) -> list[Selection]:
    """Select the messages that have one of these states; selections in which all have it are unchanged."""
    if SettleState.OPEN in states:
        return [each if each.held.untouched else each.in_states(*states) for each in selections]
    return [each.in_states(*states) for each in selections]


def held_unseen(shard: Shard, span: Span) -> HeldSlice:
    """Make a slice of which only the place and the claim are known."""
    claimed = ClaimedSlice(Bundle(span.bundle_id, 0, 0, 0, 0, b""), span.first, span.count, 0)
    return HeldSlice(shard, claimed, span.token, 0)


def count_of(slices: Iterable[HeldSlice | ClaimedSlice | StoredSlice]) -> int:
    """Count the messages in slices."""
    return sum(map(COUNT, slices))


def first_of(held: Sequence[HeldSlice], limit: int) -> tuple[list[HeldSlice], list[HeldSlice]]:
    """Split slices of which nothing is settled into the first ``limit`` messages and the rest."""
    if (len(held) == 1 and held[0].count <= limit) or count_of(held) <= limit:
        return list(held), []
    if limit <= 0:
        return [], list(held)
    first: list[HeldSlice] = []
    for number, piece in enumerate(held):
        if piece.count >= limit:
            head, tail = piece.split(limit)
            return [*first, head], [tail] * bool(tail.count) + list(held[number + 1 :])
        first.append(piece)
        limit -= piece.count
    return first, []


def claimed_once(held: Sequence[HeldSlice]) -> list[HeldSlice]:
    """Leave out messages that were claimed again later in the list: their first lease had expired.

    They are in the order of their claims. A shard that was claimed from once gave no message twice.
    """
    if held[0].token == held[-1].token:
        return list(held)
    claims = {(piece.shard, piece.token) for piece in held}
    if len(claims) == len({shard for shard, _ in claims}):
        return list(held)
    by_bundle: dict[bytes, list[HeldSlice]] = {}
    for piece in held:
        earlier = by_bundle.setdefault(piece.bundle.id, [])
        for each in earlier:
            if each.shard == piece.shard:
                start = piece.first - each.first
                each.mark(range(max(0, start), min(each.count, start + piece.count)), SettleState.LOST)
        earlier.append(piece)
    return [part for piece in held for part in ((piece,) if piece.finished else piece.held_parts)]
