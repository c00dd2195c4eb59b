"""Claiming messages for a consumer."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress

from shardq.clock import microseconds
from shardq.delivery.context import QueueContext
from shardq.delivery.held import HeldSlice
from shardq.delivery.screening import Screening
from shardq.delivery.sweeping import sweep
from shardq.errors import ShardqError
from shardq.settings import QueueSettings
from shardq.sharding.ownership import Ownership
from shardq.sharding.reading import ShardReader
from shardq.sharding.shard import Shard
from shardq.storage.requests import Claim, Claimed

__all__ = ["Receiving"]

_log = logging.getLogger(__name__)

CONTENTION_PAUSE = 50_000  # microseconds for which a shard that another consumer has locked is left alone
ENLIST_INTERVAL = 5_000_000
ENLIST_LIFETIME = 16_000_000
SWEEP_INTERVAL = 60_000_000
TOKEN_BYTES = 16


class Receiving:
    """Bulk reads over the shards of a queue, for one consumer and one thread at a time."""

    def __init__(self, context: QueueContext, consumer: str, *, visibility_timeout: float | None) -> None:
        self._context, self._consumer, self._visibility_timeout = context, consumer, visibility_timeout
        self.ownership = Ownership(consumer)
        self.reader = ShardReader(context.store, context.name, self.ownership)
        self._screening = Screening(context)
        self._enlisted_at = self._swept_at = -(10**18)

    @property
    def lease(self) -> int:
        """For how long messages are claimed, in microseconds."""
        return microseconds(self._visibility_timeout or self._context.settings.visibility_timeout)

    def enlist(self) -> None:
        """Be counted among the queue's live consumers, every five seconds; the first of them sweeps, every minute."""
        now = self._context.store.now()
        if self._enlisted_at <= now < self._enlisted_at + ENLIST_INTERVAL:
            return
        store = self._context.store
        members = self._context.retry(store.enlist, self._context.name, self._consumer, ENLIST_LIFETIME)
        self.ownership.update(members)
        self._enlisted_at = now
        if members[:1] == (self._consumer,) and not self._swept_at <= now < self._swept_at + SWEEP_INTERVAL:
            self._swept_at = now
            sweep(self._context)

    def resign(self) -> None:
        """Be counted no longer."""
        with suppress(ShardqError):  # the store forgets a silent consumer by itself
            self._context.store.resign(self._context.name, self._consumer)

    def fill(self, limit: int, *, thorough: bool) -> list[HeldSlice]:
        """Claim up to so many messages, from as many shards as it takes; fewer when those it knows have no more.

        When it is thorough, an empty result means that nothing was due in the whole queue.
        """
        settings = self._context.settings
        self.enlist()
        if settings.delivery_paused:
            return []
        held: list[HeldSlice] = []
        missing, surveyed = limit, False
        while missing > 0:
            shard = self._context.retry(self.reader.take, settings.layout)
            if shard is None and (surveyed or held):
                break
            if shard is None:
                self._context.retry(self.reader.survey, settings.layout, thorough=thorough)
                surveyed = True
                continue
            try:
                held += self._claim(shard, missing, settings)
            except ShardqError as error:
                if not held:
                    raise
                _log.warning("shard %s was not read, delivering what other shards gave: %s", shard, error)
                break
            missing = limit - sum(piece.count for piece in held)
        self._count(held)
        return held

    def _claim(self, shard: Shard, limit: int, settings: QueueSettings) -> list[HeldSlice]:
        token = secrets.token_bytes(TOKEN_BYTES)
        request = Claim(shard, token, limit, self.lease, self._consumer)
        claimed = self._context.retry(self._context.store.claim, request)
        self._report(shard, limit, claimed)
        held = [HeldSlice(shard, piece, token, claimed.lease_until) for piece in claimed.slices]
        return self._screening.deliverable(held, settings)

    def _report(self, shard: Shard, limit: int, claimed: Claimed) -> None:
        """Tell the reader what the claim said of the shard."""
        self._context.counters.add(claims=1, lock_contention=int(claimed.contended))
        self.reader.changed(shard)
        if claimed.contended:
            self.reader.avoid(shard, CONTENTION_PAUSE)
        elif sum(piece.count for piece in claimed.slices) >= limit:
            last = claimed.slices[-1].bundle
            self.reader.put_back(shard, last.priority, last.due)

    def _count(self, held: Sequence[HeldSlice]) -> None:
        received = sum(piece.count for piece in held)
        redelivered = sum(piece.count for piece in held if piece.deliveries > 1)
        self._context.counters.add(received=received, redelivered=redelivered, empty_reads=int(not received))
