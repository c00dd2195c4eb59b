"""Order within a shard: a message that waited must not be passed by one that sorts after it, at first deliveries."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from .history import Phase
from .lives import Holding, Life, Lives
from .rules import SECOND, Promise

__all__ = ["Passed", "out_of_order"]


@dataclass(frozen=True, slots=True)
class Passed:
    """``waiting`` could be claimed, sorts before ``passer``, and was claimed after it."""

    waiting: Life
    passer: Life


@dataclass(slots=True)
class _Read:
    """One receive, and the last message in the shard's order that it got there for the first time."""

    holding: Holding
    last: Life

    @property
    def claimed(self) -> int:
        return self.holding.claimed

    @property
    def rank(self) -> tuple[int, int, str, int]:
        return self.holding.delivery.rank


def out_of_order(lives: Lives, promise: Promise) -> Iterator[Passed]:
    """Every message that was passed, with one of those that passed it."""
    for firsts in _by_shard(lives).values():
        reads = sorted(_reads(firsts), key=lambda read: read.claimed)
        starts = [read.claimed for read in reads]
        for life in firsts:
            if passer := _passer(life, reads, starts, promise):
                yield Passed(life, passer)


def _by_shard(lives: Lives) -> dict[str, list[Life]]:
    found: dict[str, list[Life]] = defaultdict(list)
    for life in lives.by_body.values():
        first = life.holdings[0] if life.holdings else None
        if first and first.delivery.deliveries == 1 and life.sending:
            found[first.delivery.shard].append(life)
    return found


def _reads(firsts: list[Life]) -> list[_Read]:
    found: dict[tuple[str, int], _Read] = {}
    for life in firsts:
        holding = life.holdings[0]
        key = (holding.got.actor, holding.got.number)
        if key not in found or holding.delivery.rank > found[key].rank:
            found[key] = _Read(holding, life)
    return list(found.values())


def _passer(life: Life, reads: list[_Read], starts: list[int], promise: Promise) -> Life | None:
    sending, own = life.sending, life.holdings[0]
    if sending is None or sending.phase(life.body) is not Phase.OK or sending.outcome is None:
        return None
    slack = int((sending.invoked.seconds + promise.tolerance) * SECOND)
    there = sending.outcome.at + slack
    due = sending.outcome.store_time + slack
    rank = own.delivery.rank
    for read in reads[bisect_right(starts, there) :]:
        if read.claimed >= own.claimed:
            return None
        holding = read.holding
        earliest = holding.claimed + min(holding.shifts)
        if holding.got.at < own.claimed and earliest > due and read.rank > rank:
            return read.last
    return None
