"""Looking at the shards of one queue, or of several with the requests of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from shardq.base.ring import Layout
from shardq.base.shard import Shard
from shardq.core.sharding.probing import Probing
from shardq.errors import OutcomeUnknown, QueueNotFound, ShardqError, StoreUnavailable
from shardq.storage.requests import Probe

__all__ = ["Looks", "Surveyed", "survey"]


class Looks(msgspec.Struct, frozen=True):
    """The shards of a queue that need a look."""

    full: list[Shard]
    glances: list[Shard]


class Surveyed(Protocol):
    """What is known of the shards of one queue."""

    @property
    def queue(self) -> str:
        """The queue's name."""
        ...

    def deep_looks(self, now: int) -> Sequence[Sequence[Shard]]:
        """The shards to look at without hints: those that may share a request, then the others one by one."""
        ...

    def looks(self, layout: Layout, now: int, *, seen: set[Shard], thorough: bool) -> Looks:
        """Find out which shards there are, and which of them need a look besides those that were seen."""
        ...

    def learn(self, probe: Probe, now: int) -> None:
        """Take over what a full look tells."""
        ...

    def notice(self, probe: Probe, now: int) -> None:
        """Take over what a glance tells."""
        ...

    def looked_deep(self, shards: Sequence[Shard], seen: set[Shard], now: int, took: int) -> None:
        """Note when these were looked at without hints, how long it took in microseconds, and which were seen."""
        ...

    def surveyed(self, now: int, look_took: float, *, thorough: bool) -> None:
        """Choose candidates. A look took so many seconds."""
        ...


def survey(
    queues: Mapping[Surveyed, Layout],
    probing: Probing,
    now: int,
    timer: Callable[[], float],
    *,
    thorough: bool,
) -> dict[str, ShardqError]:
    """Look at the shards that may have something, those of all queues in one request for each kind of look.

    Returns the errors of the queues whose shards could not be listed. If that are all, the first one is raised.
    """
    by_queue = {each.queue: each for each in queues}
    seen = _look_deep(by_queue, probing, now, timer)
    errors: dict[str, ShardqError] = {}
    looks: dict[Surveyed, Looks] = {}
    for each, layout in queues.items():
        own = {shard for shard in seen if shard.queue == each.queue}
        try:
            looks[each] = each.looks(layout, now, seen=own, thorough=thorough)
        except (StoreUnavailable, OutcomeUnknown, QueueNotFound) as error:
            errors[each.queue] = error
    if not looks and errors:
        raise next(iter(errors.values()))
    full = [shard for each in looks.values() for shard in each.full]
    glances = [shard for each in looks.values() for shard in each.glances]
    began = timer()
    for probe in probing.look(full) if full else ():
        by_queue[probe.shard.queue].learn(probe, now)
    for probe in probing.look(glances, glance=True) if glances else ():
        by_queue[probe.shard.queue].notice(probe, now)
    look_took = (timer() - began) / max(1, bool(full) + bool(glances))
    for each in looks:
        each.surveyed(now, look_took, thorough=thorough)
    return errors


def _look_deep(
    by_queue: Mapping[str, Surveyed], probing: Probing, now: int, timer: Callable[[], float]
) -> set[Shard]:
    """Look without hints at what is due for it, as much as possible in one request; returns what was seen so."""
    groups = [each.deep_looks(now) for each in by_queue.values()]
    together = [shard for group in groups for shard in (group[0] if group else ())]
    alone = [shards for group in groups for shards in group[1:]]
    seen: set[Shard] = set()
    for shards in (together, *alone):
        if shards:
            seen |= _look_deep_at(shards, by_queue, probing, now, timer)
    return seen


def _look_deep_at(
    shards: Sequence[Shard],
    by_queue: Mapping[str, Surveyed],
    probing: Probing,
    now: int,
    timer: Callable[[], float],
) -> set[Shard]:
    began = timer()
    seen: set[Shard] = set()
    for probe in probing.look_deep(shards):
        by_queue[probe.shard.queue].learn(probe, now)
        seen.add(probe.shard)
    took = round(max(0.0, timer() - began) * 1_000_000)
    for queue, own in _by_queue(shards).items():
        by_queue[queue].looked_deep(own, seen, now, took)
    return seen


def _by_queue(shards: Iterable[Shard]) -> dict[str, list[Shard]]:
    found: dict[str, list[Shard]] = {}
    for shard in shards:
        found.setdefault(shard.queue, []).append(shard)
    return found
