"""What shards have to offer, without a body being read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shardq.sharding.shard import Shard
from shardq.storage.cassandra.reading import WideRow
from shardq.storage.cassandra.rows import Ready
from shardq.storage.cassandra.session import Answer, Session
from shardq.storage.cassandra.sight import Place, Sights
from shardq.storage.requests import Probe

__all__ = ["probe"]

_SOON = 100_000  # what is due so soon has no alarm
_LAPSED = 20
_AT_ONCE = 32  # shards that are asked at the same time
_FOREVER = 2**62


class _Asked(msgspec.Struct, frozen=True):
    """The questions about one shard, on their way."""

    shard: Shard
    row: WideRow
    ready: tuple[Answer, ...]
    alarms: Answer
    delayed: Answer


def probe(session: Session, sights: Sights, shards: Sequence[Shard], now: int) -> tuple[Probe, ...]:
    """Return what each of the shards has to offer, in their order; many are asked at the same time."""
    return tuple(
        _answer(asked, now)
        for start in range(0, len(shards), _AT_ONCE)
        for asked in [_ask(session, sights, shard, now) for shard in shards[start : start + _AT_ONCE]]
    )


def _ask(session: Session, sights: Sights, shard: Shard, now: int) -> _Asked:
    row = WideRow(session, str(shard))
    sight = sights.of(str(shard))
    groups: dict[Place, list[int]] = {}
    for priority, floor in enumerate(sight.floors[:10]):
        groups.setdefault((floor, b"", 0) if sight.is_old(now) else sight.places[priority], []).append(
            priority
        )
    return _Asked(
        shard,
        row,
        tuple(row.ready(members, place, now + _SOON, page=20) for place, members in groups.items()),
        row.start_alarms(sight.floors[10], _FOREVER, _LAPSED),
        row.start_next_delayed(now),
    )


def _answer(asked: _Asked, now: int) -> Probe:
    alarms = list(asked.alarms())
    lapsed = [row_id for row_id, _, due in alarms if due <= now]
    offers = [offer for answer in asked.ready for offer in _first(answer(), now)]
    offers += [
        (each.priority, holding.due)
        for holding in (asked.row.holdings(lapsed) if lapsed else ())
        if holding.due <= now
        for each in holding.slices
    ]
    ahead = [due for priority, due in offers if due > now]
    ahead += [due for _, _, due in alarms if due > now] + [due for (due,) in asked.delayed()]
    first = min((offer for offer in offers if offer[1] <= now), default=(None, None))
    return Probe(asked.shard, first[0], first[1], min(ahead, default=None))


def _first(ready: Iterator[Ready], now: int) -> Iterator[tuple[int, int]]:
    """Return priority and due time of the rows up to the first that can be claimed."""
    for each in ready:
        yield each.key.priority, each.key.due
        if each.key.due <= now:
            return
