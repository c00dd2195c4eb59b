"""Claiming messages of one queue for a consumer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from shardq.clock import microseconds
from shardq.context.identity import ConsumerIdentity
from shardq.context.queue_context import QueueContext
from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.held import HeldSlice, claimed_once, count_of, first_of
from shardq.limits.queue_limits import QueueLimits
from shardq.receiving.delivery_filter import DeliveryFilter, expires_before
from shardq.receiving.duties import Duties
from shardq.receiving.upkeep import Upkeep
from shardq.settings import QueueSettings
from shardq.settling.settle import give_back_unseen
from shardq.settling.telling import tell_claimed
from shardq.sharding.ownership import Ownership
from shardq.sharding.probing import Probing
from shardq.sharding.reading import ShardReader
from shardq.sharding.ring import Layout
from shardq.sharding.shard import Shard
from shardq.storage.requests import Claim, Claimed, Enlisted, Finish
from shardq.storage.writing import telling_done

__all__ = ["QueueClaims"]


_log = logging.getLogger(__name__)

CONTENTION_PAUSE = 50_000  # microseconds for which a shard that another consumer has locked is left alone
ENLIST_INTERVAL = 5_000_000
CLAIM_PATIENCE = 0.2  # seconds for which what fails is repeated before the rest is gone on with


class QueueClaims:
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
    ) -> None:
        self.name = context.name
        self._context, self._consumer, self._visibility_timeout = context, consumer, visibility_timeout
        self._enlisted_as = consumer.text
        self._limited = limited  # by the limits of the queue
        self._ahead = ahead  # what is claimed waits for a consumer
        self.counts = True  # False: no claim counts a delivery, whatever the settings are
        self.ownership = Ownership(self._enlisted_as)
        self.reader = ShardReader(context.store, context.name, self.ownership, probing=probing, polled=polled)
        self.filter = DeliveryFilter(context)
        self._duties = Duties(context)
        self._limits = QueueLimits(context, consumer, lambda: self.lease)
        self._settings: QueueSettings | None = None
        self._unanswered: dict[Shard, tuple[Claim, int]] = {}  # and when its lease is over at the latest
        self._enlisted_at = -(10**18)
        self._upkeep = Upkeep(context)
        self._is_first = False  # of the live consumers
        self.contended = False  # in this read others got ahead of a claim

    @property
    def lease(self) -> int:
        """For how long messages are claimed, in microseconds."""
        return microseconds(self._visibility_timeout or self._context.settings.visibility_timeout)

    @property
    def known_lease(self) -> int:
        """The same by the settings as they were read last."""
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
        return bool(self._unanswered) or self.reader.has_candidates

    @property
    def has_reason(self) -> bool:
        """True when something can be claimed, or has to be looked at, without any news."""
        return self.has_candidates or self.is_paused or self.seconds_until_due() == 0

    @property
    def layout(self) -> Layout:
        """How the queue is cut into shards, once it was opened."""
        assert self._settings is not None
        return self._settings.layout

    @property
    def is_paused(self) -> bool:
        """True while the queue delivers nothing, as far as is known."""
        return self._settings is not None and self._settings.delivery_paused

    @property
    def is_blocked(self) -> bool:
        """True when the last claim was not made for want of a permit."""
        return self._limits.blocked

    @property
    def waits_for(self) -> str:
        """The queue whose signals end the wait for messages: this one, or that of the permits that are missing."""
        return self._limits.waits_for or self.name

    def seconds_until_due(self) -> float | None:
        """Seconds until something can be taken, or has to be looked at; None: nothing is known of."""
        messages = self._limits.seconds_until_free() if self.is_blocked else self.reader.seconds_until_due()
        moments = (messages, self._duties.seconds_until_due())
        return min((moment for moment in moments if moment is not None), default=None)

    def opens(self, at_most: float | None = None) -> bool:
        """Read the settings when they are so many seconds old (None: one). True when the queue delivers."""
        live = self._context.live
        self._settings = settings = live.current(at_most)
        if settings.expires is not None:
            live.use()
        self._duties.attend()
        self._limits.begin()
        self.contended = False
        return not settings.delivery_paused

    def has_to_enlist(self, now: int) -> bool:
        """True every five seconds: then this consumer is to be counted among the live ones of the queue."""
        if self._enlisted_at <= now < self._enlisted_at + ENLIST_INTERVAL:
            return False
        self._enlisted_at = now
        return True

    def enlisted(self, told: Enlisted | None) -> None:
        """Take over what was told when it was counted; None: there is no such queue."""
        self._context.live.accept(told.record if told else None)
        if told is not None:
            self.ownership.update(told.consumers)
            self._is_first = told.consumers[:1] == (self._enlisted_as,)
            self.reader.listed(told.shards)

    @property
    def swept_at(self) -> int:
        """When leftovers were removed last."""
        return self._upkeep.swept_at

    def has_to_sweep(self, now: int) -> bool:
        """True every minute, if this is the first of the live consumers: then leftovers are to be removed."""
        return self._is_first and self._upkeep.is_due(now)

    @property
    def is_partly_swept(self) -> bool:
        """True when the last sweep had no time for all that it found: it is to be gone on with."""
        return self._upkeep.is_broken_off

    def sweep(self, now: int, seconds: float | None = None) -> None:
        """Remove leftovers, for so many seconds and a moment."""
        self._upkeep.sweep(now, large=self.filter.seen_large, seconds=seconds)

    def resign(self) -> None:
        """Count as a live consumer no longer."""
        retry, store = self._context.retry, self._context.store
        with suppress(ShardqError), retry.within(0):  # the store forgets a silent consumer by itself
            retry(store.resign, self._context.name, self._enlisted_as)

    def claim(self, limit: int, *, finish: bool) -> list[HeldSlice]:
        """Claim up to so many messages, as far as the limits of the queue allow it.

        With ``finish`` from one shard only: what it gave may be acked, and an error of the next one would lose it. Only
        the answer to a claim that is repeated can be of more than ``limit`` messages, all acked.
        """
        assert self._settings is not None
        if not self._limited or not self._settings.is_limited:
            return self._claim_all(limit, finish=finish)
        with self._limits.allowance(self._settings) as allowance:
            return allowance.cover(self._claim_all(allowance.limit(limit), finish=finish))

    def _claim_all(self, limit: int, *, finish: bool) -> list[HeldSlice]:
        """Claim from shard after shard, until half of the first lease is over. One that fails is left out a while."""
        assert self._settings is not None
        settings = self._settings
        held: list[HeldSlice] = []
        missing = limit
        while missing > 0 and not (held and (finish or self._is_time_to_hand_out(held))):
            shard = self._next(settings)
            if shard is None:
                break
            try:
                held += self._claim(shard, missing, settings, finish=finish)
            except (StoreUnavailable, OutcomeUnknown) as error:
                self.reader.failed(shard, error)
                if finish and self._may_be_finished(shard):
                    raise OutcomeUnknown(
                        f"a message of shard {shard} may have been acked: {error}"
                    ) from error
            missing = limit - count_of(held)
        return claimed_once(held)

    def _is_time_to_hand_out(self, held: Sequence[HeldSlice]) -> bool:
        return self._context.store.now() + self.lease // 2 >= held[0].lease_until

    def _next(self, settings: QueueSettings) -> Shard | None:
        """The shard to claim from next: first those whose last claim was not answered, as it may hide messages."""
        for shard in self._unanswered:
            if not self.reader.is_left_out(shard):
                return shard
        return self._context.retry(self.reader.take, settings.layout)

    def _claim(self, shard: Shard, limit: int, settings: QueueSettings, *, finish: bool) -> list[HeldSlice]:
        request = self._to_be_repeated(shard) or self._request(shard, limit, settings, finish=finish)
        claimed = self._claim_once(request)
        held = [
            HeldSlice(shard, piece, request.token, claimed.lease_until, started=request.started)
            for piece in claimed.slices
        ]
        self._report(shard, request.limit, claimed)
        tell_claimed(self._context, self._consumer.name, held)
        done, rest, missing = list[HeldSlice](), held, limit
        if request.finish is not None:
            # Nothing that the filter would keep back is finished.
            done = [piece for piece in held if piece.finished]
            rest = [piece for piece in held if not piece.finished]
            missing -= count_of(done)
        wanted, surplus = first_of(rest, missing) if missing > 0 else ([], rest)
        try:
            if surplus:
                give_back_unseen(self._context, surplus)
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
        """The shard's claim that was not answered. Once its lease is over, a new one takes what goes first.

        A claim that may have finished messages is repeated all the same, for its answer.
        """
        request, until = self._unanswered.get(shard, (None, 0))
        over = request is not None and request.finish is None and self._context.store.now() >= until
        return None if over else request

    def _request(self, shard: Shard, limit: int, settings: QueueSettings, *, finish: bool) -> Claim:
        """A claim. One that is made ahead counts no delivery yet if the queue limits deliveries.

        Nor does it for groups: counting it shows that no earlier message of the group was given back meanwhile.
        """
        unlimited = settings.max_deliveries is None and not shard.is_grouped
        started = self.counts and (unlimited or not self._ahead)
        token = self._consumer.token()
        allowed = self._finish(settings) if finish else None
        return Claim(shard, token, limit, self.known_lease, self._consumer.name, started, allowed)

    def _finish(self, settings: QueueSettings) -> Finish:
        """What the delivery filter would let pass."""
        now = self._context.store.now()
        return Finish(
            keep=settings.history_retention > 0,
            most_deliveries=settings.max_deliveries,
            since=expires_before(settings, now),
            now=now,
        )

    def _claim_once(self, request: Claim) -> Claimed:
        """The store's answer. One that may have finished messages is waited for as long as the whole call may take."""
        retry, claim = self._context.retry, self._context.store.claim
        try:
            with retry.within(CLAIM_PATIENCE):
                claimed = retry(claim, request)
        except OutcomeUnknown:
            self._unanswered[request.shard] = request, self._context.store.now() + request.lease
            if request.finish is None:
                raise
            with telling_done(lambda: "the claim may be made"):
                claimed = retry(claim, request)
        self._unanswered.pop(request.shard, None)
        return claimed

    def _may_be_finished(self, shard: Shard) -> bool:
        request, _ = self._unanswered.get(shard, (None, 0))
        return request is not None and request.finish is not None

    def _report(self, shard: Shard, limit: int, claimed: Claimed) -> None:
        """Tell the reader what the claim said of the shard."""
        self._context.counters.add(claims=1)
        count = count_of(claimed.slices)
        self.reader.claimed(shard, claimed.lease_until if count else None, used_up=count < limit)
        if claimed.contended:
            self._context.counters.add(lock_contention=1)
            self.contended = True
            self.reader.changed(shard)
            self.reader.avoid(shard, CONTENTION_PAUSE)
        elif count >= limit:
            last = claimed.slices[-1].bundle
            self.reader.put_back(shard, last.priority, last.due)
