"""Claiming messages for a consumer, and sleeping while there are none."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from shardq.clock import microseconds
from shardq.context.queue_context import REFRESH_SECONDS, QueueContext
from shardq.context.retry import Failures
from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.held import HeldSlice, SettleState, claimed_once, first_of
from shardq.receiving.delivery_filter import DeliveryFilter, expires_before
from shardq.receiving.expiring import sweep
from shardq.settings import QueueSettings
from shardq.settling.settle import give_back_unseen
from shardq.sharding.ownership import Ownership
from shardq.sharding.reading import ShardReader
from shardq.sharding.shard import Shard
from shardq.storage.requests import Claim, Claimed, Finish

__all__ = ["Idling", "Receiving"]


_log = logging.getLogger(__name__)

CONTENTION_PAUSE = 50_000  # microseconds for which a shard that another consumer has locked is left alone
ENLIST_INTERVAL = 5_000_000
ENLIST_LIFETIME = 16_000_000
SWEEP_INTERVAL = 60_000_000
TOKEN_BYTES = 16
CLAIM_PATIENCE = 0.2  # seconds for which what fails is repeated before the rest is gone on with


class Receiving:
    """Claims messages from the shards of a queue, for one consumer and one thread at a time."""

    def __init__(
        self, context: QueueContext, consumer: str, *, visibility_timeout: float | None, ahead: bool = False
    ) -> None:
        self._context, self._consumer, self._visibility_timeout = context, consumer, visibility_timeout
        self._ahead = ahead  # what is claimed waits for a consumer
        self.ownership = Ownership(consumer)
        self.reader = ShardReader(context.store, context.name, self.ownership)
        self.filter = DeliveryFilter(context)
        self._unanswered: dict[Shard, tuple[Claim, int]] = {}  # and when its lease is over at the latest
        self._enlisted_at = self._swept_at = -(10**18)

    @property
    def lease(self) -> int:
        """For how long messages are claimed, in microseconds."""
        return microseconds(self._visibility_timeout or self._context.settings.visibility_timeout)

    def enlist(self) -> None:
        """Count as a live consumer of the queue, every five seconds. The first of them sweeps, every minute."""
        now = self._context.store.now()
        if self._enlisted_at <= now < self._enlisted_at + ENLIST_INTERVAL:
            return
        self._enlisted_at = now
        store = self._context.store
        try:
            with self._context.retry.within(CLAIM_PATIENCE):
                members = self._context.retry(
                    store.enlist, self._context.name, self._consumer, ENLIST_LIFETIME
                )
        except (StoreUnavailable, OutcomeUnknown) as error:
            # Messages come first: the shards are shared as before.
            _log.warning("consumer %s was not counted: %s", self._consumer, error)
            return
        self.ownership.update(members)
        if members[:1] == (self._consumer,) and not self._swept_at <= now < self._swept_at + SWEEP_INTERVAL:
            self._swept_at = now
            self._sweep()

    def _sweep(self) -> None:
        try:
            with self._context.retry.within(0):
                sweep(self._context)
        except (StoreUnavailable, OutcomeUnknown) as error:
            # Messages come first: it is tried again in a minute.
            _log.warning("queue %s was not swept: %s", self._context.name, error)

    def resign(self) -> None:
        """Count as a live consumer no longer."""
        retry, store = self._context.retry, self._context.store
        with suppress(ShardqError), retry.within(0):  # the store forgets a silent consumer by itself
            retry(store.resign, self._context.name, self._consumer)

    def fill(self, limit: int, *, thorough: bool, finish: bool = False) -> list[HeldSlice]:
        """Claim up to ``limit`` messages, from as many shards as that takes.

        With ``finish`` a store may ack in the same step what the delivery filter would let pass. What it acked is
        finished in the answer, and everything else is open. Such a claim is repeated until it is answered or the time
        is over, and then OutcomeUnknown is raised, whatever other shards may have.

        A shard that fails is left out for a while, and the others are read. If they have nothing and the read is
        thorough, or if there are no others, the error is raised after the usual repetitions. So an empty result of a
        thorough read means that nothing was due in the whole queue.
        """
        with self._context.retry.within():
            held = self._context.retry(self._fill, limit, thorough=thorough, finish=finish)
        self._count(held)
        for piece in held:
            if piece.finished:
                piece.mark(range(piece.count), SettleState.FINISHED)
        return held

    def _fill(self, limit: int, *, thorough: bool, finish: bool) -> list[HeldSlice]:
        settings = self._context.settings
        self.enlist()
        if settings.delivery_paused:
            return []
        held = self._claim_all(limit, settings, finish=finish)
        if not held:
            self._context.retry(self.reader.survey, settings.layout, thorough=thorough)
            held = self._claim_all(limit, settings, finish=finish)
        if not held and self.reader.errors(thorough=thorough):
            self.reader.look_at_failing()
            held = self._claim_all(limit, settings, finish=finish)
        if not held and (errors := self.reader.errors(thorough=thorough)):
            raise _joined(errors).error(f"queue {self._context.name!r} gave nothing, and could not be read")
        return held

    def _claim_all(self, limit: int, settings: QueueSettings, *, finish: bool) -> list[HeldSlice]:
        """Claim from shard after shard, until half of the first lease is over. One that fails is left out a while."""
        held: list[HeldSlice] = []
        missing = limit
        while missing > 0 and not self._is_time_to_hand_out(held):
            shard = self._next(settings)
            if shard is None:
                break
            try:
                held += self._claim(shard, missing, settings, finish=finish)
            except (StoreUnavailable, OutcomeUnknown) as error:
                self.reader.failed(shard, error)
                if finish and self._may_have_finished(shard):
                    raise OutcomeUnknown(
                        f"a message of shard {shard} may have been acked: {error}"
                    ) from error
            missing = limit - sum(piece.count for piece in held)
        return claimed_once(held)

    def _is_time_to_hand_out(self, held: Sequence[HeldSlice]) -> bool:
        return bool(held) and self._context.store.now() + self.lease // 2 >= held[0].lease_until

    def _next(self, settings: QueueSettings) -> Shard | None:
        """The shard to claim from next: first those whose last claim was not answered, as it may hide messages."""
        for shard in self._unanswered:
            if not self.reader.is_left_out(shard):
                return shard
        return self._context.retry(self.reader.take, settings.layout)

    def _claim(self, shard: Shard, limit: int, settings: QueueSettings, *, finish: bool) -> list[HeldSlice]:
        request = self._to_be_repeated(shard) or self._request(shard, limit, settings, finish=finish)
        claimed = self._claim_once(request)
        self._report(shard, request.limit, claimed)
        held = [
            HeldSlice(shard, piece, request.token, claimed.lease_until, started=request.started)
            for piece in claimed.slices
        ]
        wanted, surplus = first_of(held, limit)
        if surplus:
            give_back_unseen(self._context, surplus)
        if any(piece.finished for piece in wanted):  # of what it would keep back nothing is finished
            done = [piece for piece in wanted if piece.finished]
            open_ones = [piece for piece in wanted if not piece.finished]
            return done + self.filter.deliverable(open_ones, settings)
        return self.filter.deliverable(wanted, settings)

    def _to_be_repeated(self, shard: Shard) -> Claim | None:
        """The shard's claim that was not answered. Once its lease is over, a new one takes what goes first.

        A claim that may have finished messages is repeated all the same, for its answer.
        """
        request, until = self._unanswered.get(shard, (None, 0))
        over = request is not None and request.finish is None and self._context.store.now() >= until
        return None if over else request

    def _request(self, shard: Shard, limit: int, settings: QueueSettings, *, finish: bool) -> Claim:
        """A claim. One that is made ahead counts no delivery yet if the queue limits deliveries."""
        started = not self._ahead or settings.max_deliveries is None
        token = secrets.token_bytes(TOKEN_BYTES)
        allowed = self._finish(settings) if finish else None
        return Claim(shard, token, limit, self.lease, self._consumer, started, allowed)

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
            claimed = retry(claim, request)
        self._unanswered.pop(request.shard, None)
        return claimed

    def _may_have_finished(self, shard: Shard) -> bool:
        request, _ = self._unanswered.get(shard, (None, 0))
        return request is not None and request.finish is not None

    def _report(self, shard: Shard, limit: int, claimed: Claimed) -> None:
        """Tell the reader what the claim said of the shard."""
        self._context.counters.add(claims=1, lock_contention=int(claimed.contended))
        self.reader.claimed(shard)
        if claimed.contended:
            self.reader.avoid(shard, CONTENTION_PAUSE)
        elif sum(piece.count for piece in claimed.slices) >= limit:
            last = claimed.slices[-1].bundle
            self.reader.put_back(shard, last.priority, last.due)

    def _count(self, held: Sequence[HeldSlice]) -> None:
        received = sum(piece.count for piece in held)
        redelivered = sum(piece.count for piece in held if piece.deliveries > 1)
        acked = sum(piece.count for piece in held if piece.finished)
        self._context.counters.add(
            received=received, redelivered=redelivered, acked=acked, empty_reads=int(not received)
        )


def _joined(errors: dict[Shard, ShardqError]) -> Failures:
    failures = Failures()
    for shard, error in errors.items():
        failures.add(shard, error)
    return failures


# If the store signals appends, polls only find what a signal missed. Many consumers share them.
SLOW_POLL_SECONDS = 5.0
SLOW_POLLS_PER_SECOND = 1  # of all consumers together
LONGEST_POLL_SECONDS = 10.0  # of each consumer: one that is silent for 16 seconds counts as gone
# If it does not, each empty read doubles the pause, from the first to the last one.
FIRST_POLL_SECONDS = 0.005
LAST_POLL_SECONDS = 0.25  # longer if there are so many consumers that they would make more polls than
POLLS_PER_SECOND = 12  # of all consumers together
SLICE_SECONDS = 0.5  # a stop is noticed within this time


class Idling:
    """Sleeps until there may be something to read: until a signal, the next known due time, or the next poll."""

    def __init__(
        self,
        context: QueueContext,
        reader: ShardReader,
        stopped: Callable[[], bool],
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._context, self._reader, self._stopped = context, reader, stopped
        self._lock = lock or nullcontext()  # of the reader, if other threads use it
        self._poll = FIRST_POLL_SECONDS
        self._signalled = False  # since something was last read

    def reset(self) -> None:
        """Something was read: poll quickly again."""
        self._poll = FIRST_POLL_SECONDS
        self._signalled = False

    def sleep(self, at_most: float) -> None:
        """Sleep, but not longer than so many seconds."""
        with self._lock:
            until = time.monotonic() + min(at_most, self._longest())
        self._signalled = False
        while (left := until - time.monotonic()) > 0 and not self._stopped():
            if self._context.retry(self._context.store.wait, self._context.name, min(left, SLICE_SECONDS)):
                self._signalled = True
                return

    def _longest(self) -> float:
        """Seconds until the next look.

        If a signal came and nothing was found, the message may be in the shards of a new layout. So the next look comes
        when the settings are read again.
        """
        due = self._reader.seconds_until_due()
        slow = max(SLOW_POLL_SECONDS, self._reader.consumers / SLOW_POLLS_PER_SECOND)
        slow = REFRESH_SECONDS if self._signalled else slow
        longest = min(slow, LONGEST_POLL_SECONDS, *(() if due is None else (due,)))
        if self._context.settings.delivery_paused:
            return SLICE_SECONDS
        if self._context.store.capabilities.signals:
            return longest
        last = max(LAST_POLL_SECONDS, self._reader.consumers / POLLS_PER_SECOND)
        self._poll, poll = min(self._poll * 2, last), self._poll
        return min(longest, poll)
