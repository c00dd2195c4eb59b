"""Which shard to read next.

A reader remembers what it has seen of the queue's shards. A survey brings that up to date:

- The shards that are being written now get a glance, all in one request. If the queue has messages of groups, their
  shards are always among them.
- A shard gets a full probe when something changed there, when its next due time has come, and every few seconds.
- Older shards that still hold something are listed in the shard directory.

Then the reader chooses among the shards that have something due. Its own shards come first, then those whose owner
leaves messages waiting because it is busy or gone. The next reader in line takes them after a few milliseconds, every
reader after 100. Within each group the order is priority, then age. All others' shards are not glanced at more often
than every 100 milliseconds, as a signal wakes every idle reader.

After a signal the reader claims without a survey, if the last two claims got messages of one shard of this reader:
there first. The next survey finds the other messages.

A hint that makes probes cheap may hide a message. So some reads of the reader's own shards are deep: they use no hint
(docs/design/sharding.md). A survey with a deep probe does not read the directory, and so costs no more requests.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from shardq.base.shard import Layout, Shard, group_shards
from shardq.core.sharding.known_shard import KnownShard, has_passed
from shardq.core.sharding.ownership import Ownership
from shardq.core.sharding.surveying import Probes, Probing, survey
from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.requests import Bundle, Probe
from shardq.storage.store import Store

__all__ = ["ShardReader"]

# All in microseconds by the store's clock.
CURRENT_GRACE = 2_000_000  # a time shard still counts as being written for so long after its window
STEAL_AFTER = 100_000  # a message in another consumer's shard waits for so long before it is taken
NEXT_AFTER = 5_000  # since it was seen there, before the next in line takes it; or, where probes take long,
NEXT_PROBES = 3  # for this number of probes, in which its owner can claim it
REST = 2_000_000  # until a shard gets a full probe again without a reason
DEEP_TOGETHER = 5_000_000  # deep probes that are due before an idle reader's next survey go with this one
SURVEY_INTERVAL = 500_000  # until shards are compared again while there is work
DIRECTORY_INTERVAL = 1_000_000  # until the directory is read again, or,
POLLED_DIRECTORY_INTERVAL = 7_000_000  # where queues are polled: registering tells it every five seconds
DROP_SECONDS = 0.005  # of a survey, after which no further shard is taken out of the directory
POLLED_REST = 1_000_000  # where queues are polled, for each consumer: of ten, one probes every second
LONGEST_REST = 10_000_000  # where queues are polled a shard rests the longer, the more there are, up to this


class ShardReader:
    """Chooses shards for one consumer. For one thread."""

    def __init__(
        self,
        store: Store,
        queue: str,
        ownership: Ownership,
        timer: Callable[[], float] = time.monotonic,
        probing: Probing | None = None,
        polled: int = 0,
    ) -> None:
        self.queue = queue
        self._store, self._ownership, self._timer = store, ownership, timer
        self._probing = probing or Probing(store, timer)  # of all queues that are surveyed together
        self._polled = polled  # queues that are polled together, this one included; 0 where stores signal
        self._shards: tuple[Shard, ...] = ()
        self._current: set[Shard] = set()  # those that are being written
        self._known: dict[Shard, KnownShard] = {}
        self.candidates: list[tuple[bool, int, int, Shard]] = []
        """A heap of the shards with work that the last survey found and that are not used up."""
        self._directory: tuple[Shard, ...] = ()
        self._directory_at = self._others_at = -(10**18)
        self.surveyed_at = -(10**18)
        self._others_skipped = False
        self._patience = NEXT_AFTER
        self._last_source: Shard | None = None  # of what the last claim got; None when that was nothing
        self._steady_source: Shard | None = None  # of what the last two claims got

    @property
    def consumers(self) -> int:
        """How many consumers share the queue's shards."""
        return self._ownership.consumers

    def is_outdated(self, now: int) -> bool:
        """Return whether the shards are to be compared again before something is claimed in them."""
        return bool(self.candidates) and has_passed(self.surveyed_at, SURVEY_INTERVAL, now)

    def offers(self, layout: Layout) -> list[Probe]:
        """Return the claimable messages of the whole queue, shard by shard, the longest due first.

        Raises the error of a shard that cannot be read.
        """
        self.survey(layout, thorough=True)
        self.probe_failing()
        if errors := self.errors(thorough=True):
            raise next(iter(errors.values()))
        found = [known.probe for known in self._known.values() if known.probe.priority is not None]
        return sorted(found, key=lambda probe: (probe.due or 0, probe.shard))

    def listed(self, shards: tuple[Shard, ...]) -> None:
        """Take over the present directory."""
        self._directory, self._directory_at = shards, self._store.now()

    def signalled(self) -> None:
        """Claim first, after a signal and without a probe, from the shard of the last two claims.

        A sender stays on a shard for a while. If it is not there, the survey that follows finds it.
        """
        shard = self._steady_source
        if self.candidates or shard not in self._current or self._probing.is_failing(shard):
            return
        if self._ownership.is_own(shard.number):
            heapq.heappush(self.candidates, self._rank(shard, 0, 0))

    def changed(self, shard: Shard) -> None:
        """Probe the shard again in the next survey: messages were claimed or released there."""
        if (known := self._known.get(shard)) is not None:
            known.stale = True

    def failed(self, shard: Shard, error: ShardqError) -> None:
        """Leave out the shard, from which a claim failed, for a while."""
        self._probing.fail(shard, error)
        self._steady_source = self._last_source = None
        self.candidates = [candidate for candidate in self.candidates if candidate[-1] != shard]
        heapq.heapify(self.candidates)

    def is_skipped(self, shard: Shard) -> bool:
        """Return True for a while after the shard failed."""
        return self._probing.is_failing(shard) and self._probing.pause_left(shard) > 0

    def claimed(self, shard: Shard, until: int | None, last: Bundle | None = None) -> None:
        """Note a claim from the shard, until this moment (None: there was nothing).

        There may be more to claim behind the ``last`` bundle; None: all that it offered is claimed. While it is
        written, the next survey glances at it as at the others; later it has to look again.
        """
        if self._probing.failing:
            self._probing.succeeded(shard)
        source = None if until is None else shard
        self._steady_source = source if source == self._last_source else None
        self._last_source = source
        known = self._known.get(shard)
        if known is not None and shard in self._current:
            known.claimed(until, used_up=last is None)
        elif known is not None:
            known.stale = True
        if last is not None:
            heapq.heappush(self.candidates, self._rank(shard, last.priority, last.due))

    def errors(self, *, thorough: bool) -> dict[Shard, ShardqError]:
        """Return the errors of shards that could not be read: unless it is thorough, only when none can be read."""
        errors = self._probing.errors(self._shards)
        return errors if thorough or len(errors) == len(self._shards) else {}

    def probe_failing(self) -> None:
        """Probe the shards that failed now, each alone, and take their messages and others' for candidates."""
        now = self._store.now()
        for probe in self._probing.probe_alone(list(self._probing.errors(self._shards))):
            self.learn(probe, now)
        self._choose(now, thorough=True)

    def avoid(self, shard: Shard, microseconds: int) -> None:
        """Leave the shard alone for a moment, as other claims got ahead of this consumer's."""
        if (known := self._known.get(shard)) is not None:
            known.avoid(self._store.now(), microseconds)

    def survey(self, layout: Layout, *, thorough: bool = False) -> None:
        """Probe the shards that may have messages, and choose candidates among them.

        A thorough survey probes every shard and takes other consumers' too. After it, no candidate means no work,
        except in the shards that `errors` returns.
        """
        survey({self: layout}, self._probing, self._store.now(), self._timer, thorough=thorough)

    def probes(self, layout: Layout, now: int, *, seen: set[Shard], thorough: bool) -> Probes:
        """Find out which shards there are, and which of them need a probe besides those that were seen."""
        self._current = set(layout.shards_between(self.queue, now - CURRENT_GRACE, now))
        if thorough or (not seen and has_passed(self._directory_at, self._until_listed, now)):
            self._directory, self._directory_at = self._store.shards(self.queue), now
        if any(shard.is_grouped for shard in self._directory):
            self._current.update(group_shards(self.queue))
        self._shards = tuple(sorted(self._current.union(self._directory)))
        self._probing.keep(self.queue, set(self._shards))
        unseen = set(self._shards).difference(seen)
        rest = self._rest
        full = {shard for shard in unseen if thorough or self._needs_probe(shard, now, rest)}
        if any(self._has_rested(shard, now, rest) for shard in full):  # all together: each costs a request
            full |= self._current.difference(seen)
        return Probes(sorted(full), self._choose_glances(self._current.difference(full, seen), now))

    def surveyed(self, now: int, probe_took: float, *, thorough: bool) -> None:
        """Choose candidates. A probe took ``probe_took`` seconds."""
        self._patience = max(NEXT_AFTER, round(NEXT_PROBES * 1_000_000 * probe_took))
        self._known = {shard: self._known[shard] for shard in self._shards if shard in self._known}
        self._choose(now, thorough)
        self._drop_empty(self._current, now)
        self.surveyed_at = now

    def seconds_until_due(self) -> float | None:
        """Return the seconds until this reader can take a known message, or has a reason to probe; None: neither."""
        now = self._store.now()
        moments = [
            now + round(self._probing.pause_left(shard) * 1_000_000)
            if self._probing.is_failing(shard)
            else moment
            for shard, known in self._known.items()
            if (moment := self._next(shard, known, now)) is not None
        ]
        rest = self._rest
        moments += [
            known.seen_at + rest
            for shard, known in self._known.items()
            if known.glanced and not self._probing.is_failing(shard)
        ]
        if self._others_skipped:
            moments.append(self._others_at + self._eased(STEAL_AFTER))
        return max(0, min(moments) - now) / 1_000_000 if moments else None

    def _eased(self, interval: int) -> int:
        """Return an interval, the longer the more consumers share the probing."""
        return max(interval, interval * self.consumers // 5)

    @property
    def _rest(self) -> int:
        """Return the microseconds until a shard gets a full probe again without a reason."""
        shared = max(REST * self._polled // 5, POLLED_REST * self.consumers) if self._polled else 0
        return max(self._eased(REST), min(shared, LONGEST_REST))

    @property
    def _until_listed(self) -> int:
        """Return the microseconds until the directory is read again."""
        return max(self._eased(DIRECTORY_INTERVAL), POLLED_DIRECTORY_INTERVAL if self._polled else 0)

    def deep_probes(self, now: int) -> Sequence[Sequence[Shard]]:
        """Return the shards to probe without hints: those that may share a request, then the others one by one."""
        due = [shard for shard in self._shards if self._is_deep_due(shard, now, ahead=0)]
        if not due:
            return ()
        ahead = min(max(DEEP_TOGETHER, self.consumers * 1_000_000), 2 * DEEP_TOGETHER)
        due = [shard for shard in self._shards if self._is_deep_due(shard, now, ahead=ahead)]
        together = [shard for shard in due if not self._known[shard].deep_alone]
        return together, *([shard] for shard in due if self._known[shard].deep_alone)

    def probed_deep(self, shards: Sequence[Shard], seen: set[Shard], now: int, took: int) -> None:
        """Note when these were probed without hints, how long it took in microseconds, and which were seen."""
        for shard in shards:
            self._known[shard].probed_deep(now, took, seen=shard in seen)

    def _is_deep_due(self, shard: Shard, now: int, *, ahead: int) -> bool:
        """Return whether an own shard's next deep probe comes within a time; the first of a shard is not made early."""
        known = self._known.get(shard)
        if known is None or not known.is_deep_due(now, ahead=ahead):
            return False
        return self._ownership.is_own(shard.number) and not self._probing.is_failing(shard)

    def _choose_glances(self, shards: set[Shard], now: int) -> list[Shard]:
        """Return the shards where this reader is the first or the next, and the others when it did not for a while."""
        near = [shard for shard in sorted(shards) if self._ownership.ranks[shard.number] <= 1]
        self._others_skipped = len(near) < len(shards) and not has_passed(
            self._others_at, self._eased(STEAL_AFTER), now
        )
        if self._others_skipped:
            return near
        self._others_at = now
        return sorted(shards)

    def _needs_probe(self, shard: Shard, now: int, rest: int) -> bool:
        known = self._known.get(shard)
        return known is None or known.needs_probe(now, rest)

    def _has_rested(self, shard: Shard, now: int, rest: int) -> bool:
        known = self._known.get(shard)
        return known is not None and known.has_rested(now, rest)

    def learn(self, probe: Probe, now: int) -> None:
        """Take over the result of a full probe."""
        known = self._known.get(probe.shard)
        if known is None:
            self._known[probe.shard] = KnownShard.first(probe, now)
        else:
            known.learn(probe, now)

    def notice(self, probe: Probe, now: int) -> None:
        """Take over the result of a glance."""
        known = self._known.get(probe.shard)
        if known is not None:  # else it was probed in full for the first time, and that failed
            known.notice(probe, now)

    def _choose(self, now: int, thorough: bool) -> None:
        self.candidates = [
            self._rank(shard, known.probe.priority, known.probe.due)
            for shard, known in self._known.items()
            if known.probe.priority is not None
            and known.probe.due is not None
            and (thorough or known.avoided_until(now) <= now)
            and not self._probing.is_failing(shard)
            and (thorough or self._ownership.is_own(shard.number) or self._taken_from(shard, known) <= now)
        ]
        heapq.heapify(self.candidates)

    def _taken_from(self, shard: Shard, known: KnownShard) -> int:
        """Return from when on a reader that does not own the shard takes what it offers."""
        late = (known.probe.due or 0) + STEAL_AFTER
        is_next = self._ownership.ranks[shard.number] == 1
        return min(late, known.offered_at + self._patience) if is_next else late

    def _next(self, shard: Shard, known: KnownShard, now: int) -> int | None:
        probe = known.probe
        stealable = (
            None if probe.due is None else max(self._taken_from(shard, known), known.avoided_until(now))
        )
        moments = [moment for moment in (stealable, probe.next_due) if moment is not None]
        return min(moments, default=None)

    def _rank(self, shard: Shard, priority: int, due: int) -> tuple[bool, int, int, Shard]:
        return self._ownership.ranks[shard.number] != 0, priority, due, shard

    def _drop_empty(self, current: set[Shard], now: int) -> None:
        """Remove empty shards from the directory once they are no longer written.

        Each may take a dozen requests, and messages wait. Shards for which there is no time come with the next survey,
        before those that were tried by then.
        """
        until = self._timer() + DROP_SECONDS
        unused = [
            shard
            for shard, known in self._known.items()
            if known.is_to_be_dropped(now, is_written=shard in current and not shard.is_grouped)
        ]
        for shard in sorted(unused, key=lambda shard: self._known[shard].drop_at):
            self._known[shard].tried_to_drop(now)
            with suppress(StoreUnavailable, OutcomeUnknown):  # it is tried again
                self._store.drop_if_empty(shard)
            if self._timer() >= until:
                return
