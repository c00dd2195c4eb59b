"""Probes of the shards of one queue or several: a shard that cannot be read costs the others nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from shardq.base.log import Log
from shardq.base.shard import Layout, Shard
from shardq.errors import OutcomeUnknown, QueueNotFound, ShardqError, StoreUnavailable
from shardq.storage.requests import Probe
from shardq.storage.store import Store

__all__ = ["Probes", "Probing", "Surveyed", "in_groups", "survey"]

T = TypeVar("T")
R = TypeVar("R")

_log = Log(__name__)

FIRST_PAUSE = 0.5  # seconds for which a shard that failed is left out; doubled by every failure up to
LONGEST_PAUSE = 30.0
GIVE_UP_AFTER = 12  # requests that fail without one that succeeds: the whole store is unreachable


class _Failing(msgspec.Struct):
    """A shard that failed, since when it is left out, and for how long.

    Without an error it could be read again. It is still remembered, until something was claimed in it.
    """

    error: ShardqError | None
    since: float
    pause: float


class Probing:
    """Probes shards together; where that fails, in halves, until those that fail are known.

    They are left out for some seconds and probed alone then.
    """

    def __init__(self, store: Store, timer: Callable[[], float]) -> None:
        self._store, self.timer = store, timer
        self.failing: dict[Shard, _Failing] = {}
        """Shards that failed, until something was claimed in them."""

    def probe(self, shards: Iterable[Shard], *, glance: bool = False) -> list[Probe]:
        """Probe all shards that can be read. Those that failed are probed again when their pause has ended."""
        known = list(shards)
        found, failed = self._ask([shard for shard in known if not self.is_failing(shard)], glance=glance)
        for shard, error in failed:
            self.fail(shard, error)
        return found + self.probe_alone(
            shard for shard in known if self.is_failing(shard) and self.pause_left(shard) <= 0
        )

    def probe_deep(self, shards: Sequence[Shard]) -> list[Probe]:
        """Probe without hints. A shard that cannot be read so is left out; an ordinary probe may still succeed."""
        found, failed = self._ask(shards, deep=True)
        for shard, error in failed:
            _log.warning("shard %s was not probed without hints, trying again later: %s", shard, error)
        return found

    def probe_alone(self, shards: Iterable[Shard]) -> list[Probe]:
        """Probe shards that failed before, each in a separate request."""
        found = []
        for shard in shards:
            try:
                (probe,) = self._store.probe([shard])
            except (StoreUnavailable, OutcomeUnknown) as error:
                self.fail(shard, error)
                continue
            self.failing[shard].error = None
            if probe.priority is None:
                self.succeeded(shard)
            found.append(probe)
        return found

    def fail(self, shard: Shard, error: ShardqError) -> None:
        """Leave out the shard, which failed, for a while."""
        before = self.failing.get(shard)
        pause = FIRST_PAUSE if before is None else min(2 * before.pause, LONGEST_PAUSE)
        self.failing[shard] = _Failing(error, self.timer(), pause)
        _log.warning("shard %s is left out for %g seconds: %s", shard, pause, error)

    def succeeded(self, shard: Shard) -> None:
        """Forget the failure: something was claimed in the shard, or there was nothing to claim."""
        self.failing.pop(shard, None)

    def is_failing(self, shard: Shard) -> bool:
        """Return True from the shard's failure until it can be read again."""
        entry = self.failing.get(shard)
        return entry is not None and entry.error is not None

    def pause_left(self, shard: Shard) -> float:
        """Return for how many seconds a failing shard is still left out; 0 or less when it may be probed."""
        entry = self.failing[shard]
        return entry.since + entry.pause - self.timer()

    def errors(self, shards: Iterable[Shard]) -> dict[Shard, ShardqError]:
        """Return those of the shards that are failing, with the last error of each."""
        entries = ((shard, self.failing.get(shard)) for shard in shards) if self.failing else ()
        return {
            shard: entry.error for shard, entry in entries if entry is not None and entry.error is not None
        }

    def keep(self, queue: str, shards: set[Shard]) -> None:
        """Forget all others of the queue."""
        self.failing = {
            shard: entry for shard, entry in self.failing.items() if shard in shards or shard.queue != queue
        }

    def _ask(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[list[Probe], list[tuple[Shard, ShardqError]]]:
        """Probe in as few requests as it takes; raises when nothing can be read at all."""
        return in_groups([shards], partial(self._store.probe, glance=glance, deep=deep), GIVE_UP_AFTER)


def in_groups(
    groups: Iterable[Sequence[T]], ask: Callable[[Sequence[T]], Iterable[R]], give_up_after: int
) -> tuple[list[R], list[tuple[T, ShardqError]]]:
    """Ask for all of a group in one request, and for one that fails in halves.

    Returns answers, and the single items that failed. The largest groups are asked first, so that one unreadable queue
    does not look like an unreadable store. After ``give_up_after`` failures without an answer the last one is raised.
    """
    found: list[R] = []
    failed: list[tuple[T, ShardqError]] = []
    waiting = deque(group for group in groups if group)
    failures = 0
    while waiting:
        group = waiting.popleft()
        try:
            found += ask(group)
        except (StoreUnavailable, OutcomeUnknown) as error:
            failures += 1
            if failures >= give_up_after and not found:
                raise
            if len(group) == 1:
                failed.append((group[0], error))
            else:
                middle = len(group) // 2
                waiting += (group[:middle], group[middle:])
    return found, failed


class Probes(msgspec.Struct, frozen=True):
    """The shards of a queue that need a probe."""

    full: list[Shard]
    glances: list[Shard]


class Surveyed(Protocol):
    """The knowledge about the shards of one queue."""

    @property
    def queue(self) -> str:
        """The queue's name."""
        ...

    def deep_probes(self, now: int) -> Sequence[Sequence[Shard]]:
        """Return the shards to probe without hints: those that may share a request, then the others one by one."""
        ...

    def probes(self, layout: Layout, now: int, *, seen: set[Shard], thorough: bool) -> Probes:
        """Find out which shards there are, and which of them need a probe besides those that were seen."""
        ...

    def learn(self, probe: Probe, now: int) -> None:
        """Take over the result of a full probe."""
        ...

    def notice(self, probe: Probe, now: int) -> None:
        """Take over the result of a glance."""
        ...

    def probed_deep(self, shards: Sequence[Shard], seen: set[Shard], now: int, took: int) -> None:
        """Note when these were probed without hints, how long it took in microseconds, and which were seen."""
        ...

    def surveyed(self, now: int, probe_took: float, *, thorough: bool) -> None:
        """Choose candidates. A probe took ``probe_took`` seconds."""
        ...


def survey(
    queues: Mapping[Surveyed, Layout],
    probing: Probing,
    now: int,
    timer: Callable[[], float],
    *,
    thorough: bool,
) -> dict[str, ShardqError]:
    """Probe the shards that may have messages, those of all queues in one request for each kind of probe.

    Returns the errors of the queues whose shards could not be listed. If that are all, the first one is raised.
    """
    by_queue = {each.queue: each for each in queues}
    seen = _probe_deep(by_queue, probing, now, timer)
    errors: dict[str, ShardqError] = {}
    probes: dict[Surveyed, Probes] = {}
    for each, layout in queues.items():
        own = {shard for shard in seen if shard.queue == each.queue}
        try:
            probes[each] = each.probes(layout, now, seen=own, thorough=thorough)
        except (StoreUnavailable, OutcomeUnknown, QueueNotFound) as error:
            errors[each.queue] = error
    if not probes and errors:
        raise next(iter(errors.values()))
    full = [shard for each in probes.values() for shard in each.full]
    glances = [shard for each in probes.values() for shard in each.glances]
    began = timer()
    for probe in probing.probe(full) if full else ():
        by_queue[probe.shard.queue].learn(probe, now)
    for probe in probing.probe(glances, glance=True) if glances else ():
        by_queue[probe.shard.queue].notice(probe, now)
    probe_took = (timer() - began) / max(1, bool(full) + bool(glances))
    for each in probes:
        each.surveyed(now, probe_took, thorough=thorough)
    return errors


def _probe_deep(
    by_queue: Mapping[str, Surveyed], probing: Probing, now: int, timer: Callable[[], float]
) -> set[Shard]:
    """Probe without hints the shards that are due for it, as many as possible in one request.

    Returns those that were seen.
    """
    groups = [each.deep_probes(now) for each in by_queue.values()]
    together = [shard for group in groups for shard in (group[0] if group else ())]
    alone = [shards for group in groups for shards in group[1:]]
    seen: set[Shard] = set()
    for shards in (together, *alone):
        if shards:
            seen |= _probe_deep_at(shards, by_queue, probing, now, timer)
    return seen


def _probe_deep_at(
    shards: Sequence[Shard],
    by_queue: Mapping[str, Surveyed],
    probing: Probing,
    now: int,
    timer: Callable[[], float],
) -> set[Shard]:
    began = timer()
    seen: set[Shard] = set()
    for probe in probing.probe_deep(shards):
        by_queue[probe.shard.queue].learn(probe, now)
        seen.add(probe.shard)
    took = round(max(0.0, timer() - began) * 1_000_000)
    for queue, own in _by_queue(shards).items():
        by_queue[queue].probed_deep(own, seen, now, took)
    return seen


def _by_queue(shards: Iterable[Shard]) -> dict[str, list[Shard]]:
    found: dict[str, list[Shard]] = {}
    for shard in shards:
        found.setdefault(shard.queue, []).append(shard)
    return found
