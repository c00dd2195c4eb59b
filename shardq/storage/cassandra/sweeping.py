"""Removing what no operation needs any more, and putting hints right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from shardq.sharding.shard import Shard
from shardq.storage.cassandra import directory, queues, removal
from shardq.storage.cassandra.looks import ask_history
from shardq.storage.cassandra.queues import name_of, parted
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import Sweep

__all__ = ["sweep"]

_States: TypeAlias = Mapping[str, tuple[str, bool]]

_LIMIT = 200
_AT_ONCE = 50


def sweep(
    session: Session, request: Sweep, now: Callable[[], int], look: Callable[[Sequence[Shard]], object]
) -> int:
    """Give up history, up to 200 slices of each shard, and leftovers of incarnations that are over; returns how much.

    It looks at every shard in which something is stored, listed or not. Keys and consumers end by themselves.
    Drops that stopped half way are finished, of any queue, as nobody may come back to its name.
    """
    incarnation = queues.current(session, request.queue)
    own = None if incarnation is None else name_of(request.queue, incarnation)
    living: set[Shard] = set(directory.listing(session, own)) if own else set()
    others: dict[str, list[str]] = {}
    for partition in removal.partitions(session):
        name, time_shard, number = partition.rsplit(":", 2)
        if name == own:
            living.add(Shard(name, int(time_shard), int(number)))
        else:
            others.setdefault(name, []).append(partition)
    shards, given_up = iter(sorted(living)), 0
    while chunk := list(islice(shards, _AT_ONCE)):
        look(chunk)
        old = {shard for shard, _ in ask_history(session, list(map(str, chunk)), request.history_before)()}
        expired = (shard for shard in chunk if str(shard) in old)
        given_up += sum(removal.expire(session, shard, request.history_before, _LIMIT) for shard in expired)
    states = queues.states(session)
    erased = sum(_erase(session, name, others[name], now) for name in _over(session, others, states))
    return given_up + erased + _finish_drops(session, states, now)


def _finish_drops(session: Session, states: _States, now: Callable[[], int]) -> int:
    """Finish the drops of queues that stopped half way, or are under way; returns how many."""
    dropped = [(queue, incarnation) for queue, (incarnation, is_condemned) in states.items() if is_condemned]
    for queue, incarnation in dropped:
        removal.finish_drop(session, queue, incarnation, now)
    return len(dropped)


def _over(session: Session, names: dict[str, list[str]], states: _States) -> Iterator[str]:
    """Return which of the names are of incarnations that are over.

    Nothing is stored under a name before its incarnation is created. So what was found under a name that is not among
    those that there are, looked up afterwards, is left over.
    """
    known = {name_of(queue, incarnation) for queue, (incarnation, _) in states.items()}
    for name in sorted(names.keys() - known):
        queue, incarnation = parted(name)
        if queues.surely_current(session, queue) != incarnation:
            yield name


def _erase(session: Session, name: str, partitions: Sequence[str], now: Callable[[], int]) -> int:
    for partition in partitions:
        removal.erase(session, partition, now())
    removal.forget_name(session, name, now())
    return len(partitions)
