"""Removing what no operation needs any more, and putting hints right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardq.base.shard import Shard
from shardq.storage.cassandra import directory, queues, removal
from shardq.storage.cassandra.probe_reads import ask_history
from shardq.storage.cassandra.queues import name_of
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import Sweep

__all__ = ["sweep"]

_LIMIT = 200
_AT_ONCE = 50


def sweep(
    session: Session, request: Sweep, now: Callable[[], int], look: Callable[[Sequence[Shard]], object]
) -> int:
    """Give up history, up to 200 slices of each shard, and finish drops; returns how much.

    It reads every shard that may hold anything, listed or not. Keys and consumers expire automatically. Drops that
    stopped half way are finished, of any queue, as its name may never be used again.
    """
    incarnation, given_up = queues.current(session, request.queue), 0
    shards = (
        () if incarnation is None else directory.ever_listed(session, name_of(request.queue, incarnation))
    )
    for first in range(0, len(shards), _AT_ONCE):
        chunk = shards[first : first + _AT_ONCE]
        look(chunk)
        old = {shard for shard, _ in ask_history(session, list(map(str, chunk)), request.history_before)()}
        expired = (shard for shard in chunk if str(shard) in old)
        given_up += sum(removal.expire(session, shard, request.history_before, _LIMIT) for shard in expired)
    return given_up + _finish_drops(session, now)


def _finish_drops(session: Session, now: Callable[[], int]) -> int:
    """Finish the drops of queues that stopped half way, or are under way; returns how many."""
    states = queues.states(session)
    dropped = [(queue, incarnation) for queue, (incarnation, is_condemned) in states.items() if is_condemned]
    for queue, incarnation in dropped:
        removal.finish_drop(session, queue, incarnation, now)
    return len(dropped)
