"""Keeping back what was claimed and must not be delivered: too old, or delivered too often."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shardq.clock import microseconds
from shardq.codec import BYTES
from shardq.delivery.context import QueueContext
from shardq.delivery.dead_letters import EXHAUSTED
from shardq.delivery.held import HeldSlice, Pick
from shardq.delivery.settlement import Settlement
from shardq.errors import InvalidMessage, LeaseLost
from shardq.settings import QueueSettings
from shardq.storage.requests import Acknowledge

__all__ = ["Screening"]

_log = logging.getLogger(__name__)


class Screening:
    """Sorts out what a claim of one queue gave."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._settlement = Settlement(context, BYTES)

    def deliverable(self, held: Sequence[HeldSlice], settings: QueueSettings) -> list[HeldSlice]:
        """Drop what is too old, dead-letter what was delivered too often; the rest is for the consumer."""
        kept = []
        for piece in held:
            if settings.retention is not None and self._age(piece) > microseconds(settings.retention):
                self._drop(piece)
            elif settings.max_deliveries is not None and piece.deliveries > settings.max_deliveries:
                self._bury(piece)
            else:
                kept.append(piece)
        return kept

    def _age(self, piece: HeldSlice) -> int:
        return self._context.store.now() - piece.bundle.enqueued_at

    def _drop(self, piece: HeldSlice) -> None:
        spans = piece.spans(list(range(piece.count)))
        self._context.retry(self._context.store.acknowledge, Acknowledge(piece.shard, spans))
        self._context.counters.add(expired=piece.count)

    def _bury(self, piece: HeldSlice) -> None:
        piece.deliveries -= 1  # this delivery does not take place
        try:
            self._settlement.dead_letter([Pick(piece, list(range(piece.count)))], EXHAUSTED)
        except LeaseLost:  # whoever has it now will do the same
            return
        except InvalidMessage as error:  # damaged in the store: it stays there, for a person to look at
            _log.error("messages of shard %s cannot be dead-lettered: %s", piece.shard, error)
