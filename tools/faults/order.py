"""Order within a shard: a message that waited must not be passed by one that sorts after it, at first deliveries."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from .history import Phase
from .lives import Life, Lives
from .rules import SECOND, Promise

__all__ = ["out_of_order"]


@dataclass(frozen=True, slots=True)
class Passed:
    """``waiting`` could be claimed, sorts before ``passer``, and was claimed after it."""

    waiting: Life
    passer: Life


@dataclass(frozen=True, slots=True)
class _Read:
    """One claim, or receive, and the last message in the shard's order that it got there for the first time."""

    last: Life
    rank: tuple[int, int, str, int]
    claimed: int  # on the machine's clock: the earliest moment at which it can have been claimed
    earliest: int  # the same moment on the store's clock
    got: int


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
    found: dict[tuple[str, int], Life] = {}
    for life in firsts:
        claim = life.holdings[0].taken or life.holdings[0].got
        last = found.setdefault((claim.actor, claim.number), life)
        if _rank(life) > _rank(last):
            found[claim.actor, claim.number] = life
    return [_read(each) for each in found.values()]


def _read(last: Life) -> _Read:
    holding = last.holdings[0]
    claimed = holding.claimed
    return _Read(last, _rank(last), claimed, claimed + min(holding.shifts), holding.got.at)


def _rank(life: Life) -> tuple[int, int, str, int]:
    return life.holdings[0].delivery.rank


def _passer(life: Life, reads: list[_Read], starts: list[int], promise: Promise) -> Life | None:
    sending = life.sending
    if sending is None or sending.phase(life.body) is not Phase.OK or sending.outcome is None:
        return None
    slack = int((sending.invoked.seconds + promise.tolerance) * SECOND)
    there = sending.outcome.at + slack
    due = sending.outcome.store_time + slack
    claimed, rank = life.holdings[0].claimed, _rank(life)
    for read in reads[bisect_right(starts, there) :]:
        if read.claimed >= claimed:
            return None
        if read.got < claimed and read.earliest > due and read.rank > rank:
            return read.last
    return None
