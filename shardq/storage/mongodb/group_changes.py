"""Operations on the messages of groups, but for claims: each is one transaction, and keeps the order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile

from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.storage.mongodb.changing import Change, Decision
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.documents import GROUP, PLACE, SENT_DUE, Row, Slice
from shardq.storage.mongodb.groups import Groups, in_transaction
from shardq.storage.mongodb.shard_rows import GROUP_INDEX
from shardq.storage.mongodb.slicing import by_bundle, cut, fenced
from shardq.storage.mongodb.transactions import BRIEF, PATIENT, Disturbed
from shardq.storage.requests import Bundle, Fenced, Span

__all__ = ["append", "change", "end", "leave_alone", "places", "purge", "put_back", "release", "settle"]

_AT_ONCE = 1000


def append(client: Client, shard: Shard, bundles: Sequence[Bundle]) -> None:
    """Store bundles that are new behind the last of their groups. Raises QueueNotFound."""
    in_transaction(client, shard, lambda groups: groups.append(bundles), opens=True)


def settle(client: Client, shard: Shard, spans: Sequence[Span], decide: Decision, *, ends: bool) -> Fenced:
    """Change held messages of the spans; ``ends``: they leave their groups."""
    return in_transaction(client, shard, lambda groups: change(groups, spans, decide, ends=ends))


def release(client: Client, shard: Shard, spans: Sequence[Span], decide: Decision) -> Fenced:
    """Release held messages of the spans, and those held behind them."""
    now = client.clock.now()

    def released(groups: Groups) -> Fenced:
        missing = change(groups, spans, decide, ends=False)
        put_back(groups, spans, now)
        return missing

    return in_transaction(client, shard, released)


def leave_alone(client: Client, shard: Shard, spans: Sequence[Span], decide: Decision) -> Fenced:
    """Change held messages of the spans, which stay held, and release those held behind them."""
    now = client.clock.now()

    def hold(groups: Groups) -> Fenced:
        missing = change(groups, spans, decide, ends=False)
        _put_back_from(groups, _first_behind(groups, spans), now)
        return missing

    return in_transaction(client, shard, hold)


def end(client: Client, shard: Shard, bundle_id: bytes, decide: Decision) -> bool:
    """Change one bundle, so that the stay of some of its messages ends; False when nothing is to be changed."""

    def change_one(groups: Groups) -> bool:
        plan = [(row, new) for row in groups.read([bundle_id]).values() if (new := decide(row)) is not None]
        for row, new in plan:
            groups.change(row, new, ends=True)
        return bool(plan)

    return in_transaction(client, shard, change_one)


def purge(client: Client, shard: Shard) -> Iterator[int]:
    """Remove all but the history; yields how many messages that were, bit by bit.

    Of all groups together; while others are at work on some, one of which may have crashed, group after group. Raises
    Disturbed when some were changed by others all the time: all others are removed then.
    """
    try:
        yield from _purge(client, shard, {"$gte": ""}, BRIEF)
    except Disturbed:
        yield from _purge_group_after_group(client, shard)


def _purge_group_after_group(client: Client, shard: Shard) -> Iterator[int]:
    group, disturbed = _next(client, shard, ""), None
    while group:
        try:
            yield from _purge(client, shard, group, PATIENT)
        except Disturbed as error:
            disturbed = error
        group = _next(client, shard, group)
    if disturbed is not None:
        raise disturbed


def _next(client: Client, shard: Shard, after: str) -> str:
    """Return the next group that has messages; "" when there is none."""
    waiting = {GROUP: {"$gt": after}, PLACE: {"$gt": -1}}
    rows = in_transaction(client, shard, lambda groups: groups.rows.find(waiting, hint=GROUP_INDEX, limit=1))
    return rows[0].group if rows else ""


def _purge(client: Client, shard: Shard, group: object, pauses: Sequence[float]) -> Iterator[int]:
    """Remove what there is of a group, or of those that a condition names; returns how many messages, bit by bit."""

    def remove(groups: Groups) -> list[Row]:
        found = groups.rows.find({GROUP: group, PLACE: {"$gt": -1}}, hint=GROUP_INDEX, limit=_AT_ONCE)
        for row in groups.read(row.id for row in found).values():
            groups.change(row, Change((), row.kept), ends=True)
        return found

    more = True
    while more:
        removed = in_transaction(client, shard, remove, pauses)
        yield sum(each.count for row in removed for each in row.slices)
        more = len(removed) == _AT_ONCE  # else these were all


def change(groups: Groups, spans: Sequence[Span], decide: Decision, *, ends: bool) -> Fenced:
    """Decide on each bundle of the spans; return what of them is not held."""
    seen = groups.read(by_bundle(spans))
    for row in seen.values():
        if (new := decide(row)) is not None:
            groups.change(row, new, ends=ends)
    return fenced(spans, seen)


def put_back(groups: Groups, spans: Sequence[Span], now: int) -> None:
    """Release, without counting the delivery, messages held behind the first of the spans in each group."""
    wanted = by_bundle(spans)
    first: dict[str, int] = {}
    for row in groups.read(wanted).values():
        for each in cut(row, wanted[row.id])[0]:
            first[row.group] = min(row.base + each.first, first.get(row.group, row.base + each.first))
    _put_back_from(groups, first, now)


def places(groups: Groups, spans: Sequence[Span]) -> list[int]:
    """Return the places of the first messages of spans that are held."""
    rows = groups.read(span.bundle_id for span in spans)
    return [rows[span.bundle_id].base + span.first for span in spans]


def _first_behind(groups: Groups, spans: Sequence[Span]) -> dict[str, int]:
    """Return the place in each group of the first held message behind the spans that they do not name."""
    wanted = by_bundle(spans)
    found: dict[str, int] = {}
    for group in {row.group for row in groups.read(wanted).values()}:
        named = dropwhile(lambda each: not each[1], _held(groups, group, wanted))
        for place, _ in dropwhile(lambda each: each[1], named):
            found[group] = place
            break
    return found


def _held(groups: Groups, group: str, wanted: Mapping[bytes, Sequence[Span]]) -> Iterator[tuple[int, bool]]:
    """Yield the places of a group's held messages, cut at the borders of spans, and whether these name them."""
    for row in groups.follow(group):
        named, rest = cut(row, wanted.get(row.id, ()))
        for each in sorted((*named, *rest), key=lambda each: each.first):
            if each.token is None:
                return  # held messages are the front part
            yield row.base + each.first, each in named


def _put_back_from(groups: Groups, first: Mapping[str, int], now: int) -> None:
    """Release held messages of groups from a place on."""
    for group, place in first.items():
        for row in groups.follow(group):
            if row.slices[0].token is None:
                break  # held messages are the front part
            _put_back(groups, row, place, now)


def _put_back(groups: Groups, row: Row, place: int, now: int) -> None:
    planned = groups.now(row)
    slices = tuple(
        _uncounted(row, each, now) if each.token is not None and row.base + each.first >= place else each
        for each in planned.slices
    )
    if slices != planned.slices:
        groups.change(row, replace(planned, slices=slices))


def _uncounted(row: Row, held: Slice, now: int) -> Slice:
    deliveries = held.all_deliveries - 1
    due = now if deliveries else min(int(row.raw[SENT_DUE]), now)
    return Slice(held.first, held.count, due, deliveries)
