"""Sends that are carried out by several attempts and stored once: a run, sent part by part.

A run is all that one job sends. The job names the parts that it cuts, so that every attempt at a part finds the same
name. The first attempt at a part describes it in the decision log: a fingerprint of its messages, the moment and the
layout. These decide the ids, due times and shards of its bundles. So another attempt, later or at the same time,
appends the same bundles, and a store takes each once. When all are stored, the log says so. From then on the part is
skipped, also long after the store has forgotten its bundles. If an attempt has other messages than the one before, it
is refused and nothing is stored.

A run may be executed again by an application that cannot have the same messages any more, such as a query whose leases
had expired when it was restarted. The next execution of such a run sends a part that has changed as a further edition
of it. The messages that both have are stored twice, and none is left out. Within one execution it is refused.

Messages can be delivered twice in two cases. A part is interrupted and repeated after more than 15 minutes, and one of
its bundles was finished in between. Or a run is repeated after ``window``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

import msgspec

from shardq.base.log import Log
from shardq.base.outgoing_message import Headers
from shardq.base.shard import Layout, Shard, group_shard
from shardq.core.context.decision_log import Decision, DecisionLog
from shardq.core.context.queue_context import QueueContext
from shardq.core.sending.appending import RUN, admit
from shardq.core.sending.planned_bundles import PlannedBundle, check_groups
from shardq.core.sending.prepared import expiry_of, size_of
from shardq.core.sending.storing import store_sends
from shardq.errors import ReplayConflict
from shardq.spark.parts import Common, RunPart, commons_of
from shardq.storage.bundles import BundleData, encode_bundle, repeatable_bundle_id
from shardq.topics.envelopes import counts_in_envelopes, enveloped

__all__ = ["BegunPart", "Run"]

_log = Log(__name__)

APPEND_BYTES = 1_048_576
APPEND_KEYS = 500
MOST_EDITIONS = 1_000
_PREFIX = "shardq-run:"

Value = TypeVar("Value")


class _Terms(msgspec.Struct, array_like=True, frozen=True):
    """The common terms of every attempt at a part; entered by the first one."""

    fingerprint: str
    moment: int
    layout: Layout
    counts: tuple[int, ...]  # of messages in each bundle, or in each envelope
    lanes_by_shard: bool = False  # lanes of one shard share bundles; an older part has them apart
    # this number of messages of incomplete bundles goes to one shard; 0, as before: each has its own
    turn_messages: int = 0
    execution: str = ""  # of the run
    group_lanes: int = 1  # of each group: the queue's `group_concurrency`
    is_last: bool | None = None  # of its partition; None: not known, as in an older version

    def commons(self, part: RunPart) -> list[Common]:
        """Return the messages that may share a bundle."""
        shards = self.layout.shards if self.lanes_by_shard else None
        return commons_of(part, self.moment, shards=shards, group_lanes=self.group_lanes)


_decode_terms = msgspec.json.Decoder(_Terms).decode


class BegunPart(msgspec.Struct, frozen=True):
    """A part whose terms are decided."""

    part: RunPart
    terms: _Terms
    decision: Decision
    is_first: bool  # no earlier attempt decided


class _Turn:
    """Whose turn it is, of the shards of a time shard: small bundles go together, in one request.

    Messages with due times of their own are bundles of their own.
    """

    def __init__(self, first: int, messages: int) -> None:
        self._next, self._messages, self._filled = first, messages, 0

    def take(self, messages: int, *, whole: bool) -> int:
        """Return the turn of a bundle with this number of messages."""
        turn = self._next
        self._filled += messages
        if whole or self._filled >= self._messages:
            self._next, self._filled = turn + 1, 0
        return turn


class Run:
    """Sends the parts of one run to one queue. Safe for threads.

    ``pace`` is called with the number of messages before they are appended, and may wait. With ``execution``, which
    all attempts of one execution have in common, a part that another execution had otherwise is sent once more. With
    ``in_envelopes`` the queue is the log of a topic, and each bundle becomes an envelope.
    """

    def __init__(
        self,
        context: QueueContext,
        name: str,
        *,
        window: int,
        bundle_messages: int,
        bundle_bytes: int,
        pace: Callable[[int], None] = lambda _: None,
        execution: str = "",
        in_envelopes: bool = False,
    ) -> None:
        self._context, self._name, self._window, self._pace = context, name, window, pace
        self._execution, self._in_envelopes = execution, in_envelopes
        self._bundle_messages, self._bundle_bytes = bundle_messages, bundle_bytes
        self._decisions = DecisionLog(context, f"{_PREFIX}{name}:")

    def send(self, part: RunPart) -> int:
        """Store a part; returns how many messages were stored now: none when an earlier attempt had finished it.

        A message whose key another one has is not stored, and not counted. Raises MessageTooLarge, QueuePaused,
        UnsupportedByStore or ReplayConflict with nothing stored; StoreUnavailable or OutcomeUnknown when it is to be
        sent again.
        """
        return self.store(self.begin(part))

    def begin(self, part: RunPart, again: Callable[[int], RunPart] | None = None) -> BegunPart:
        """Decide the terms of a part; the parts of a partition MUST begin one after the other.

        Then those that an attempt has begun are the first ones, so that the next attempt finds where its rows differ.
        ``again`` cuts the part with another number of rows. It is given where rows of one id may have other sizes.
        """
        self._check(part)
        offered = _Terms(
            part.fingerprint,
            self._context.store.now(),
            self._context.settings.layout,
            (),
            lanes_by_shard=True,
            turn_messages=self._bundle_messages,
            execution=self._execution,
            group_lanes=self._context.settings.group_concurrency,
            is_last=part.is_last,
        )
        counts = tuple(self._counts(part, offered.commons(part)))
        return self._decide(part, msgspec.structs.replace(offered, counts=counts), again)

    def begin_nothing(self, partition: int) -> None:
        """Raise ReplayConflict if an earlier attempt had rows in this partition, which has none."""
        name = f"{partition}-0"
        for edition in range(MOST_EDITIONS):
            (entry,) = self._decisions.read([_edition(name, edition)])
            if entry is None:
                return
            if self._execution in ("", _decode_terms(entry.value).execution):
                raise self._conflict(name)

    def store(self, begun: BegunPart) -> int:
        """Store a part that has begun, as :meth:`send` does."""
        part, terms = begun.part, begun.terms
        if begun.decision.done:
            return 0
        bundles = self._bundles(part, terms)
        if not begun.is_first:
            bundles = (planned for planned in bundles if self._is_missing(planned))
        duplicates = 0
        for some in _by_shard(bundles):
            self._pace(sum(planned.messages for planned in some))
            written = store_sends(self._context, some, RUN)
            if written.error is not None:
                raise written.error
            duplicates += written.duplicates
        self._decisions.finish(part.name, begun.decision.value)
        return len(part.bodies) - duplicates

    def _decide(self, part: RunPart, offered: _Terms, again: Callable[[int], RunPart] | None) -> BegunPart:
        """Decide the edition of the part that holds these messages, with its terms."""
        text = msgspec.json.encode(offered).decode()
        for edition in range(MOST_EDITIONS):
            name = _edition(part.name, edition)
            decision = self._decisions.decide(name, text, self._window)
            terms = _decode_terms(decision.value)
            is_repeated = self._execution in ("", terms.execution)
            found = self._cut_as(terms, part, again)
            if found.fingerprint == terms.fingerprint:
                if is_repeated and {terms.is_last, found.is_last} == {True, False}:
                    break
                found = msgspec.structs.replace(found, name=name)
                return BegunPart(found, terms, decision, is_first=terms == offered)
            if is_repeated:
                break
            self._warn_of_changes(part, terms, edition)
        raise self._conflict(part.name)

    def _cut_as(self, terms: _Terms, part: RunPart, again: Callable[[int], RunPart] | None) -> RunPart:
        """Return the part with as many rows as an earlier attempt had in it, if these are the same rows."""
        count = sum(terms.counts)
        if again is None or count == len(part.bodies) or not count:
            return part
        found = again(count)
        if found.fingerprint != terms.fingerprint:
            return again(len(part.bodies))
        self._check(found)
        return found

    def _warn_of_changes(self, part: RunPart, stored: _Terms, edition: int) -> None:
        _log.warning(
            "part %s of run %r to queue %r held %d messages in an earlier execution, edition %d, and holds %d others "
            "now: those that both have may be stored twice",
            part.name, self._name, self._context.name, sum(stored.counts), edition, len(part.bodies),
        )  # fmt: skip

    def _is_missing(self, planned: PlannedBundle) -> bool:
        """Return whether no earlier attempt stored it.

        A queue with bounds would make room for it again. Its rows may have other bodies now, and no store promises
        anything for other data under the same id.
        """
        find = self._context.store.find
        return self._context.retry(find, planned.shard, planned.id, 0) is None

    def _check(self, part: RunPart) -> None:
        headers = part.headers or [None] * len(part.bodies)
        sizes = map(len, part.bodies) if part.headers is None else _sizes(part.bodies, headers)
        admit(self._context, RUN, max(sizes, default=0))
        if part.groups is not None and any(part.groups):
            check_groups(self._context.store, self._context.name, "a group")

    def _bundles(self, part: RunPart, terms: _Terms) -> Iterator[PlannedBundle]:
        layout, counts = terms.layout, iter(terms.counts)
        if self._in_envelopes and sum(terms.counts) < len(part.bodies):  # an older version counted envelopes
            counts = self._counts(part, terms.commons(part))
        turns = defaultdict[int, _Turn](lambda: _Turn(part.turn, terms.turn_messages))
        sequence = 0
        for common in terms.commons(part):
            time_shard, start = layout.time_shard(common.due), 0
            while start < len(common.places):
                places = common.places[start : start + next(counts)]
                if common.group:
                    shard = group_shard(self._context.name, common.group)
                else:
                    whole = start + len(places) < len(common.places)  # more of them follow: it was full
                    counted = turns[time_shard if terms.turn_messages else 0]
                    turn = counted.take(len(places), whole=whole) if common.lane is None else common.lane
                    shard = Shard(self._context.name, time_shard, turn % layout.shards)
                identity = repeatable_bundle_id(
                    terms.moment, sequence, self._context.name, self._name, part.name
                )
                planned = _planned(shard, identity, part, common, places, terms.moment)
                yield self._enveloped(planned) if self._in_envelopes else planned
                sequence, start = sequence + 1, start + len(places)

    def _enveloped(self, planned: PlannedBundle) -> PlannedBundle:
        """Put the messages of a bundle into one; raises MessageTooLarge when they grew since an earlier attempt."""
        made = enveloped(planned.data, planned.count)
        admit(self._context, RUN, len(planned.data))
        data = encode_bundle(BundleData([made.body], [dict(made.headers)] if made.headers else None))
        return msgspec.structs.replace(planned, count=1, data=data)

    def _counts(self, part: RunPart, commons: Iterable[Common]) -> Iterator[int]:
        """Yield how many messages fill each bundle or envelope, by their number and their bytes."""
        if self._in_envelopes:
            headers = part.headers or [None] * len(part.bodies)
            yield from counts_in_envelopes(zip(part.bodies, headers, strict=True))
            return
        for common in commons:
            start = 0
            while start < len(common.places):
                some = _picked(part.bodies, common.places[start : start + self._bundle_messages])
                filled = bisect_left(list(accumulate(map(len, some))), self._bundle_bytes) + 1
                yield min(filled, len(some))
                start += min(filled, len(some))

    def _conflict(self, name: str) -> ReplayConflict:
        return ReplayConflict(
            f"part {name} of run {self._name!r} to queue {self._context.name!r} holds other messages than in an "
            "earlier attempt, or more or fewer follow it. That attempt may have stored some. Make the input the same "
            "in every attempt, name a column that identifies each row with idColumn, or send it as another run"
        )


def _edition(name: str, edition: int) -> str:
    return f"{name}~{edition}" if edition else name


def _sizes(bodies: Sequence[bytes], headers: Sequence[Headers | None]) -> Iterator[int]:
    return (len(body) + size_of(header) for body, header in zip(bodies, headers, strict=True))


def _planned(
    shard: Shard, identity: bytes, part: RunPart, common: Common, places: Sequence[int], moment: int
) -> PlannedBundle:
    dedupe_key = None if part.dedupe_keys is None else part.dedupe_keys[places[0]]
    unique_key = None if part.unique_keys is None else part.unique_keys[places[0]]
    bodies = list(_picked(part.bodies, places))
    headers = None if part.headers is None else list(_picked(part.headers, places))
    keys = None if dedupe_key is None else [dedupe_key]
    is_keyed = dedupe_key is not None or unique_key is not None
    return PlannedBundle(
        identity,
        common.priority,
        common.due,
        moment,
        len(places),
        encode_bundle(
            BundleData(bodies, headers if headers and any(headers) else None, keys, unique_key=unique_key)
        ),
        expiry_of(common.due, common.ttl),
        common.group,
        shard=shard,
        key=dedupe_key,
        places=places[:1] if is_keyed else (),
        positions=range(1) if is_keyed else (),
        unique_key=unique_key,
    )


def _picked(values: Sequence[Value], places: Sequence[int]) -> Sequence[Value]:
    """Pick the values at some places."""
    if isinstance(places, range):
        return values[places.start : places.stop]
    return [values[place] for place in places]


def _by_shard(bundles: Iterable[PlannedBundle]) -> Iterator[list[PlannedBundle]]:
    """Yield bundles by shard, as many together as one request may have bytes, or keys."""
    waiting: dict[Shard, list[PlannedBundle]] = {}
    sizes: dict[Shard, int] = {}
    for planned in bundles:
        shard = planned.shard
        waiting.setdefault(shard, []).append(planned)
        sizes[shard] = sizes.get(shard, 0) + len(planned.data)
        is_full = planned.has_key and len(waiting[shard]) >= APPEND_KEYS
        if is_full or sizes[shard] >= APPEND_BYTES:
            yield waiting.pop(shard)
            del sizes[shard]
    yield from waiting.values()
