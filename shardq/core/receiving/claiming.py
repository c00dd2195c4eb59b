"""Claiming messages of one queue for a consumer."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence

from shardq.base.clock import microseconds
from shardq.base.log import Log
from shardq.base.shard import Layout, Shard
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import COUNT, HeldSlice, claimed_once, first_of
from shardq.core.limits.queue_limits import QueueLimits
from shardq.core.receiving.delivery_filter import DeliveryFilter, expires_before
from shardq.core.receiving.registering import CLAIM_PATIENCE, REGISTER_INTERVAL, RegistrationTimer, deregister
from shardq.core.receiving.upkeep import Upkeep
from shardq.core.settings import QueueSettings
from shardq.core.settling.events import record_claimed
from shardq.core.settling.operations import share_returned
from shardq.core.settling.settle import release_uncounted
from shardq.core.sharding.ownership import Ownership
from shardq.core.sharding.reading import SURVEY_INTERVAL, ShardReader
from shardq.core.sharding.surveying import Probing
from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.records import Registration
from shardq.storage.requests import Claim, Claimed, Finish
from shardq.storage.writing import reporting_done

__all__ = ["QueueClaims"]


_log = Log(__name__)

CONTENTION_PAUSE = 50_000  # microseconds for which a shard that another consumer has locked is left alone


class QueueClaims(RegistrationTimer):
    """Claims messages from the shards of one queue, for one consumer and one thread at a time."""

    def __init__(
        self,
        context: QueueContext,
        consumer: ConsumerIdentity,
        probing: Probing,
        *,
        visibility_timeout: float | None,
        ahead: bool,
        limited: bool,
        polled: int,
        uses: bool = True,
    ) -> None:
        self.name, self.context = context.name, context
        self._uses = uses  # which keeps a queue that expires
        self._context, self._consumer, self._visibility_timeout = context, consumer, visibility_timeout
        self._registered_as = consumer.text
        self._limited = limited  # by the limits of the queue
        self._ahead = ahead  # what is claimed waits for a consumer
        self.counts = True  # False: no claim counts a delivery, whatever the settings are
        self.ownership = Ownership(self._registered_as)
        self.reader = ShardReader(context.store, context.name, self.ownership, probing=probing, polled=polled)
        self.filter = DeliveryFilter(context)
        self._limits = QueueLimits(context, consumer, lambda: self.known_lease)
        self._settings: QueueSettings | None = None
        self.layout: Layout
        """How the queue is cut into shards, once it was opened."""
        self._lease: int
        self._is_limited = False
        self._unanswered: dict[Shard, tuple[Claim, int]] = {}  # and when its lease expires at the latest
        self.nothing_due_until = 0  # microseconds; no registration, job or sweep is due before; 0: one may be
        self.upkeep = Upkeep(context)
        self._is_first = False  # of the live consumers
        self.contended = False  # in this read others got ahead of a claim

    @property
    def known_lease(self) -> int:
        """For how long messages are claimed, in microseconds, by the settings as they were read last."""
        return microseconds(self._visibility_timeout or self._context.live.known.visibility_timeout)

    @property
    def is_unanswered(self) -> bool:
        """True while a claim was not answered: it may hide messages."""
        return bool(self._unanswered)

    @property
    def may_have_finished(self) -> bool:
        """True while a claim was not answered that may have acked a message."""
        return any(request.finish is not None for request, _ in self._unanswered.values())

    @property
    def has_candidates(self) -> bool:
        """True when there is a shard to claim from."""
        return bool(self._unanswered or self.reader.candidates)

    @property
    def has_reason(self) -> bool:
        """True when something can be claimed, or has to be looked at, without any news."""
        return self.has_candidates or self.is_paused or self.seconds_until_due() == 0

    def is_outdated(self, now: int) -> bool:
        """Return whether the shards are to be compared before a claim. A queue with limits needs a permit first."""
        return not self._is_limited and self.reader.is_outdated(now)

    @property
    def is_paused(self) -> bool:
        """True while the queue delivers nothing, as far as is known."""
        return self._settings is not None and self._settings.delivery_paused

    @property
    def is_blocked(self) -> bool:
        """True when the last claim was not made for want of a permit."""
        return self._is_limited and self._limits.blocked

    @property
    def waits_for(self) -> str:
        """The queue whose signals end the wait for messages: this one, or that of the permits that are missing."""
        return (self.is_blocked and self._limits.waits_for) or self.name

    def seconds_until_due(self) -> float | None:
        """Return the seconds until a message can be taken, or a shard must be probed; None: nothing is known."""
        messages = self._limits.seconds_until_free() if self.is_blocked else self.reader.seconds_until_due()
        moments = (messages, self.upkeep.seconds_until_job())
        return min((moment for moment in moments if moment is not None), default=None)

    def opens(self, at_most: float | None = None) -> bool:
        """Read the settings if they are ``at_most`` seconds old (None: one); return whether the queue delivers."""
        live = self._context.live
        settings = live.current(at_most)
        if settings is not self._settings:
            self._take_over(settings)
        if settings.expires is not None and self._uses:
            live.use()
        if live.jobs or self.upkeep.moments:
            self.upkeep.attend()
        if self._is_limited:
            self._limits.begin()
        self.contended = False
        self.nothing_due_until = (
            0
            if settings.delivery_paused or self._is_limited
            else min(self.registered_at + REGISTER_INTERVAL, self.upkeep.due_at(sweeps=self._is_first))
        )
        return not settings.delivery_paused

    def _take_over(self, settings: QueueSettings) -> None:
        """Decide what holds for every claim by these settings."""
        self._settings, self.layout, self._lease = settings, settings.layout, self.known_lease
        self._is_limited = self._limited and settings.is_limited

    def registered(self, registration: Registration | None) -> None:
        """Take over the store's answer to the registration; None: there is no such queue."""
        self._context.live.accept(registration.record if registration else None)
        if registration is not None:
            self.ownership.update(registration.consumers)
            self._is_first = registration.consumers[:1] == (self._registered_as,)
            self.reader.listed(registration.shards)

    def has_to_sweep(self, now: int) -> bool:
        """Return True every minute, if this is the first of the live consumers: then leftovers are to be removed."""
        return self._is_first and self.upkeep.has_to_sweep(now)

    def deregister(self) -> None:
        """Count as a live consumer no longer."""
        deregister(self._context, self._registered_as)

    def claim_known(self, limit: int, *, finish: bool) -> list[HeldSlice]:
        """Claim what the last survey has found, for up to half a second after it, while nothing else is due.

        An empty list says nothing of the queue: a read asks then, or claims by :meth:`claim`.
        """
        reader = self.reader
        try:
            now = self._context.store.now()
        except StoreUnavailable:  # the clock is in doubt: a read asks again
            return []
        until = min(reader.surveyed_at + SURVEY_INTERVAL, self.nothing_due_until)
        if self._unanswered or not reader.surveyed_at <= now < until:
            return []
        if self._context.live.current() is not self._settings:
            return []
        return self._claim_all(limit, finish=finish)

    def claim(self, limit: int, *, finish: bool) -> list[HeldSlice]:
        """Claim up to ``limit`` messages, as far as the limits of the queue allow it.

        With ``finish``, claim from one shard only: an error of the next one would lose messages that were acked. Only
        the answer to a claim that is repeated can be of more than ``limit`` messages, all acked.
        """
        if not self._is_limited:
            return self._claim_all(limit, finish=finish)
        assert self._settings is not None
        with self._limits.allowance(self._settings) as allowance:
            allowed = allowance.limit(limit)
            if allowed and self.reader.is_outdated(self._context.store.now()):
                self.reader.survey(self.layout)
            return allowance.cover(self._claim_all(allowed, finish=finish))

    def _claim_all(self, limit: int, *, finish: bool) -> list[HeldSlice]:
        """Claim from shard after shard, until half of the first lease has passed.

        A shard that fails is left out a while.
        """
        held: list[HeldSlice] = []
        missing = limit
        while missing > 0 and not (held and (finish or self._is_time_to_hand_out(held))):
            shard = self._unanswered_shard() if self._unanswered else None
            if shard is None:
                if not self.reader.candidates:
                    break
                shard = heapq.heappop(self.reader.candidates)[-1]
            try:
                held += self._claim(shard, missing, finish=finish)
            except (StoreUnavailable, OutcomeUnknown) as error:
                self.reader.failed(shard, error)
                if finish and self._may_be_finished(shard):
                    raise OutcomeUnknown(
                        f"a message of shard {shard} may have been acked: {error}"
                    ) from error
            missing = limit - sum(map(COUNT, held))
        return claimed_once(held) if len(held) > 1 else held

    def _is_time_to_hand_out(self, held: Sequence[HeldSlice]) -> bool:
        try:
            return self._context.store.now() + self._lease // 2 >= held[0].lease_until
        except StoreUnavailable:  # the clock is in doubt
            return True

    def _unanswered_shard(self) -> Shard | None:
        """Return a shard whose last claim was not answered and may hide messages: it comes first."""
        return next((shard for shard in self._unanswered if not self.reader.is_skipped(shard)), None)

    def _claim(self, shard: Shard, limit: int, *, finish: bool) -> list[HeldSlice]:
        settings = self._settings
        assert settings is not None
        request = self._to_be_repeated(shard) if self._unanswered else None
        if request is None:
            request = self._request(shard, limit, settings, finish=finish)
        incarnation = self._context.live.created_again  # which may be another one after the claim
        claimed = self._claim_once(request)
        held = [
            HeldSlice(shard, piece, request.token, claimed.lease_until, started=request.started)
            for piece in claimed.slices
        ]
        for piece in held if incarnation else ():
            piece.incarnation = incarnation
        if held and held[0].bundle.group:
            share_returned(held)
        count = sum(map(COUNT, held))
        self._report(request, claimed, count)
        if self._context.live.keeps_events:
            record_claimed(self._context, self._consumer.name, held)
        # Nothing that the filter would keep back is finished.
        done = [] if request.finish is None else [piece for piece in held if piece.finished]
        if done and len(done) == len(held):
            return done
        rest = [piece for piece in held if not piece.finished] if done else held
        wanted, surplus = (rest, []) if count <= limit else first_of(rest, limit - sum(map(COUNT, done)))
        try:
            if surplus:
                release_uncounted(self._context, surplus)
            delivered = done + self.filter.deliverable(wanted, settings)
        except ShardqError as error:
            self.reader.changed(shard)
            if not done:
                raise
            _log.warning("messages of shard %s come later than those that are acked: %s", shard, error)
            return done
        if surplus or len(delivered) < len(held):
            self.reader.changed(shard)
        return delivered

    def _to_be_repeated(self, shard: Shard) -> Claim | None:
        """Return the shard's claim that was not answered. Once its lease has expired, a new one takes what goes first.

        A claim that may have finished messages is repeated all the same, for its answer.
        """
        request, until = self._unanswered.get(shard, (None, 0))
        over = request is not None and request.finish is None and self._context.store.now() >= until
        return None if over else request

    def _request(self, shard: Shard, limit: int, settings: QueueSettings, *, finish: bool) -> Claim:
        """Make a claim. One that is made ahead counts no delivery yet if the queue limits deliveries.

        Nor does it for groups: counting it shows that no earlier message of the group was released meanwhile.
        """
        started = self.counts and (
            not self._ahead or (settings.max_deliveries is None and not shard.is_grouped)
        )
        allowed = self._finish(settings) if finish else None
        return Claim(shard, self._consumer.token(), limit, self._lease, self._consumer.name, started, allowed)

    def _finish(self, settings: QueueSettings) -> Finish:
        """Return the limits of a claim that also acks, which are those of the delivery filter."""
        now = self._context.store.now()
        since = None if settings.retention is None else expires_before(settings, now)
        return Finish(
            keep=settings.history_retention > 0, most_deliveries=settings.max_deliveries, since=since, now=now
        )

    def _claim_once(self, request: Claim) -> Claimed:
        """Ask the store to claim. A shard that fails is repeated for a moment only, as others have messages too.

        A claim that may have finished messages is awaited for as long as the whole call may take.
        """
        retry, claim = self._context.retry, self._context.store.claim
        try:
            claimed = retry.until(time.monotonic() + CLAIM_PATIENCE, retry, claim, request)
        except OutcomeUnknown:
            self._unanswered[request.shard] = request, self._context.store.now() + request.lease
            if request.finish is None:
                raise
            with reporting_done(lambda: "the claim may be made"):
                claimed = retry(claim, request)
        if self._unanswered:
            self._unanswered.pop(request.shard, None)
        return claimed

    def _may_be_finished(self, shard: Shard) -> bool:
        request, _ = self._unanswered.get(shard, (None, 0))
        return request is not None and request.finish is not None

    def _report(self, request: Claim, claimed: Claimed, count: int) -> None:
        """Pass the claim's answer about the shard to the reader."""
        self._context.counters.add(claims=1)
        shard, reader = request.shard, self.reader
        last = claimed.slices[-1].bundle if count >= request.limit else None
        reader.claimed(shard, claimed.lease_until if count else None, last)
        if claimed.contended:
            self._context.counters.add(lock_contention=1)
            self.contended = True
            reader.changed(shard)
            reader.avoid(shard, CONTENTION_PAUSE)
