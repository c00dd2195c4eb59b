"""Receiving for a consumer, from one queue or from several in turn.

The queues of a consumer share its probes and its waits, so twenty idle queues cost little more than one. Each has its
own settings. One that cannot be read, does not exist any more or is paused is left out, and the others continue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from shardq.base.shard import Layout, Shard
from shardq.core.context.catalogue import CATALOGUE
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Failures, patiently
from shardq.core.held import HeldSlice, count_of
from shardq.core.receiving.claiming import QueueClaims
from shardq.core.receiving.delivery_filter import count_received
from shardq.core.receiving.discovery import QueueDiscovery
from shardq.core.receiving.registering import CLAIM_PATIENCE, Registered, register
from shardq.core.receiving.several_queues import FailedQueues, QueueScheduler, StrictOrder, Sweeping
from shardq.core.sharding.reading import SURVEY_INTERVAL
from shardq.core.sharding.surveying import Probing, Surveyed, survey
from shardq.errors import ShardqError, UnsupportedByStore

__all__ = ["Receiving"]

SURVEY_SECONDS = SURVEY_INTERVAL / 1_000_000  # until all queues are compared again while there is work
NEWS_SECONDS = 5.0  # for which only those queues are probed that a signal came from
KNOWN_SECONDS = 10.0  # for which settings hold while polls find nothing: registering tells them every five


class Receiving:
    """Claims messages for one consumer and one thread at a time. All messages of one call are of one queue."""

    def __init__(
        self,
        contexts: Sequence[QueueContext],
        consumer: ConsumerIdentity,
        *,
        visibility_timeout: float | None = None,
        ahead: bool = False,
        limited: bool = True,
        scheduler: QueueScheduler | None = None,
        discovery: QueueDiscovery | None = None,
    ) -> None:
        first = contexts[0] if discovery is None else discovery.catalogue  # all are of one client
        self._first, self._store, self._retry = first, first.store, first.retry
        self._probing = Probing(first.store, time.monotonic)
        self._polls = not first.store.capabilities.signals
        self._can_claim = first.store.capabilities.claims
        self._claims_of = partial(
            QueueClaims,
            consumer=consumer,
            probing=self._probing,
            visibility_timeout=visibility_timeout,
            ahead=ahead,
            limited=limited,
        )
        polled = len(contexts) if self._polls else 0
        self.queues = {context.name: self._claims_of(context, polled=polled) for context in contexts}
        self.discovery, self.counts = discovery, True
        self.on_change: list[Callable[[], None]] = []  # called when the queues change, by who claims
        self._consumer, self._registered_as = consumer.name, consumer.text
        self._scheduler = scheduler or StrictOrder(tuple(self.queues))
        self._failed = FailedQueues(self.queues, self._retry, follow=discovery is not None)
        self._sweeping = Sweeping(self.queues.values(), self._failed, self._store)
        self._alone = self.queues[first.name] if len(contexts) == 1 and discovery is None else None
        self._all_probed_at = -1e9
        self.timer = time.monotonic
        """Decides when queues are to be read again, and knows whether one that failed did so before."""

    def lease_of(self, held: Sequence[HeldSlice]) -> int:
        """Return for how long these are held, in microseconds, as far as is known; 0 for none."""
        return self.claims(held[0].shard.queue).known_lease if held else 0

    def unexpired(self, held: Sequence[HeldSlice]) -> list[HeldSlice]:
        """Return the messages of one queue that have not expired since they were claimed; drop the others."""
        return self.claims(held[0].shard.queue).filter.unexpired(held) if held else []

    def claims(self, name: str) -> QueueClaims:
        """Return the claims of a queue, also of one that was deleted."""
        return self.queues.get(name) or cast("QueueDiscovery", self.discovery).left[name]

    # -- what a consumer sleeps by ------------------------------------------------------------------------------

    @property
    def consumers(self) -> int:
        """How many consumers share the probing, where they are most."""
        return max((queue.ownership.consumers for queue in self.queues.values()), default=1)

    @property
    def paused(self) -> list[str]:
        """The queues that deliver nothing, as far as is known."""
        return [queue.name for queue in self._present() if queue.is_paused]

    @property
    def waits_for(self) -> dict[str, str]:
        """The queues whose signals end a wait, and the queue of this consumer for which each of them does so."""
        waits_for = {queue.waits_for: queue.name for queue in self.queues.values()}
        return waits_for or {CATALOGUE: CATALOGUE}  # while no queue matches

    def seconds_until_due(self) -> float | None:
        """Return the seconds until a known message can be taken, or a shard must be probed; None: neither."""
        moments = [queue.seconds_until_due() for queue in self._present()]
        if self.discovery is not None:
            moments.append(self.discovery.seconds_until_due())
        return min((moment for moment in moments if moment is not None), default=None)

    # -- claiming -----------------------------------------------------------------------------------------------

    def fill(
        self,
        limit: int,
        *,
        thorough: bool,
        finish: bool = False,
        news: Collection[str] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> list[HeldSlice]:
        """Claim up to ``limit`` messages of one queue, from as many shards as that takes.

        With ``finish`` a store may ack in the same step what the delivery filter would let pass. The acked messages
        are finished in the answer, and all others are open. Such a claim is repeated until it is answered or the time
        has passed. Then OutcomeUnknown is raised, whatever other shards may have.

        A shard that fails is left out for a while, and the others are read; so is a queue. If they have nothing and the
        read is thorough, or if there are no others, the error is raised after the usual repetitions. A thorough read is
        repeated while other consumers get ahead of its claims. So an empty result of it means that nothing was due in
        any of the queues.

        With ``news``, only these queues have to be probed, and those where a probe is due. With ``limits`` only these
        are received from, and at most the given number of messages of each.

        Raises UnsupportedByStore within a transaction of the application whose store refuses claims there.
        """
        if not self._can_claim:
            raise UnsupportedByStore(
                "receiving cannot be part of a transaction of the application on this store: do that outside of it"
            )
        began, alone = time.monotonic(), self._alone
        if alone is not None and news and not self._polls:
            alone.reader.signalled()
        held: list[HeldSlice] = []
        if alone is not None and alone.reader.candidates:
            held = self._retry.until(began + self._retry.seconds, alone.claim_known, limit, finish=finish)
        if not held:
            probes_all = (
                alone is not None or thorough or news is None or self._is_time_to_probe_all(NEWS_SECONDS)
            )
            names = None if probes_all else set(news or ())
            claim = partial(
                self._fill, limit, limits, thorough=thorough, finish=finish, names=names, news=news or ()
            )
            with self._retry.within(since=began):  # surveys are repeated only here
                held = patiently(
                    partial(self._retry, claim),
                    lambda held: (
                        thorough and not held and any(queue.contended for queue in self.queues.values())
                    ),
                )
        known = self.queues.get(held[0].shard.queue) if held else None  # unless it was deleted meanwhile
        count_received(self._first if known is None else known.context, held)
        return held

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Claim without counting a delivery within the block. :meth:`SettleEngine.start` counts it."""
        self._count_claims(counts=False)
        try:
            yield
        finally:
            self._count_claims(counts=True)

    def _count_claims(self, *, counts: bool) -> None:
        self.counts = counts
        for queue in self.queues.values():
            queue.counts = counts

    def deregister(self) -> None:
        """Count as a live consumer no longer."""
        self._sweeping.close()
        for queue in self.queues.values():
            queue.deregister()
        if self.discovery is not None:
            self.discovery.deregister()

    def follow(self) -> bool:
        """Find out which queues there are now, if it is time to; True if they are others than before."""
        discovery = self.discovery
        if discovery is None:
            return False
        now = self._store.now()
        if discovery.has_to_register(now):
            due: list[Registered] = [
                *(each for each in self.queues.values() if each.has_to_register(now)),
                discovery,
            ]
            register(self._store, self._retry, due, self._registered_as, self._consumer)
        return discovery.update(now, self.queues, self._make_claims, partial(self._changed, discovery))

    def _changed(self, discovery: QueueDiscovery) -> None:
        """Take over the queues of patterns, which are others than before."""
        self._failed.forget(discovery.left)
        self._scheduler.follow(discovery.found)
        for call in self.on_change:
            call()

    def _make_claims(self, context: QueueContext, **options: Any) -> QueueClaims:
        queue = self._claims_of(context, polled=len(self.queues) + 1 if self._polls else 0, **options)
        queue.counts = self.counts
        return queue

    def _fill(
        self,
        limit: int,
        limits: Mapping[str, int] | None,
        *,
        thorough: bool,
        finish: bool,
        names: set[str] | None,
        news: Collection[str],
    ) -> list[HeldSlice]:
        began = self.timer()
        names = None if self.follow() else names
        limits = dict.fromkeys(self.queues, limit) if limits is None else limits
        queues = self._open(limits, names, thorough=thorough)
        if self._alone is None and not self._polls and len(queues) == 1 and queues[0].name in news:
            queues[0].reader.signalled()  # with several queues each has a turn
        if self._is_time_to_compare(queues, names):
            self._survey(queues, names)
        held, free = self._claim(queues, limits, finish=finish), queues
        if not held:
            free = [queue for queue in queues if not queue.is_blocked]
            self._survey(free, names, thorough=thorough)
            held = self._claim(free, limits, finish=finish)
        if not held and names is None and self._unreadable(free, thorough=thorough):
            for queue in free:
                queue.reader.probe_failing()
            held = self._claim(free, limits, finish=finish)
        if self._failed:
            read = [held[0].shard.queue] if held else [queue.name for queue in queues]
            self._failed.take_back(read, began)
        if not held and names is None:
            self._raise_if_any(free, thorough=thorough)
        return held

    def _open(self, among: Collection[str], names: set[str] | None, *, thorough: bool) -> list[QueueClaims]:
        """Return the queues to claim from: those that exist and deliver now."""
        now = self._store.now()
        wanted: list[QueueClaims] = []
        unlisted: list[QueueClaims] = []
        for queue in self.queues.values():
            if (
                queue.name in among
                and (names is None or queue.name in names or queue.has_reason)
                and (thorough or not self._failed.rests(queue.name))
            ):
                wanted.append(queue)
                if queue.has_to_register(now):
                    unlisted.append(queue)
        if unlisted:
            register(self._store, self._retry, unlisted, self._registered_as, self._consumer)
        opened = [queue for queue in wanted if self._opens(queue, only_probe=not thorough)]
        if unlisted or any(queue.nothing_due_until <= now for queue in wanted):
            self._sweeping.attend(now)
        return opened

    def _opens(self, queue: QueueClaims, *, only_probe: bool = False) -> bool:
        """Return whether the queue delivers, by its current settings.

        Polls probe queues that have nothing. For a probe the settings may be older; before a claim they are read.
        """
        only_probe = only_probe and self._polls and not (queue.has_candidates or queue.is_paused)
        opens = partial(queue.opens, KNOWN_SECONDS if only_probe else None)
        return self._failed.try_(queue, opens, instead=False, patience=CLAIM_PATIENCE)

    def _claim(
        self, queues: Sequence[QueueClaims], limits: Mapping[str, int], *, finish: bool
    ) -> list[HeldSlice]:
        """Claim from the queue whose turn it is. A claim that was not answered comes first."""
        able = [queue for queue in queues if queue.has_candidates and not queue.is_blocked]
        for queue in able if len(able) < 2 else self._in_turn(able):
            if self._polls and not self._opens(queue):
                continue
            claim = partial(queue.claim, limits[queue.name], finish=finish)
            held: list[HeldSlice] = self._failed.try_(queue, claim, instead=[])
            if held:
                self._scheduler.took(queue.name, count_of(held))
                return held
        return []

    def _in_turn(self, queues: Sequence[QueueClaims]) -> list[QueueClaims]:
        by_name = {queue.name: queue for queue in queues}
        order = [by_name[name] for name in self._scheduler.order() if name in by_name]
        return sorted(order, key=lambda queue: not queue.is_unanswered)

    def _survey(
        self, queues: Sequence[QueueClaims], names: set[str] | None, *, thorough: bool = False
    ) -> None:
        if names is None:
            self._all_probed_at = self.timer()
        if not queues:
            return
        self._retry.check_allowed()
        layouts: dict[Surveyed, Layout] = {queue.reader: queue.layout for queue in queues}
        errors = survey(layouts, self._probing, self._store.now(), self.timer, thorough=thorough)
        for name, error in errors.items():
            self._failed.add(name, error)

    def _is_time_to_compare(self, queues: Sequence[QueueClaims], names: set[str] | None) -> bool:
        """Return whether something is to be claimed, and others may have got messages since their last probe."""
        now = self._store.now()
        is_due = len(queues) > 1 and names is None and self._is_time_to_probe_all(SURVEY_SECONDS)
        return any(queue.has_candidates if is_due else queue.is_outdated(now) for queue in queues)

    def _is_time_to_probe_all(self, seconds: float) -> bool:
        return self.timer() - self._all_probed_at > seconds

    # -- what cannot be read ------------------------------------------------------------------------------------

    def _present(self) -> list[QueueClaims]:
        """Return the queues that are not left out."""
        return [queue for queue in self.queues.values() if queue.name not in self._failed]

    def _unreadable(self, queues: Sequence[QueueClaims], *, thorough: bool) -> dict[Shard, ShardqError]:
        """Return the shards that could not be read: unless it is thorough, only if no others can."""
        errors = [queue.reader.errors(thorough=thorough) for queue in queues]
        if not thorough and not all(errors):
            return {}
        return {shard: error for each in errors for shard, error in each.items()}

    def _raise_if_any(self, queues: Sequence[QueueClaims], *, thorough: bool) -> None:
        self._failed.raise_if_any(thorough=thorough)
        if errors := self._unreadable(queues, thorough=thorough):
            failures = Failures()
            for shard, error in errors.items():
                failures.add(shard, error)
            names = ", ".join(sorted({repr(shard.queue) for shard in errors}))
            which = f"queue {names}" if len(self.queues) == 1 else f"{len(self.queues)} queues"
            raise failures.error(f"{which} gave nothing, and could not be read")
