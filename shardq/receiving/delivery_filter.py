"""Keeping back what was claimed and must not be delivered: too old, or delivered too often."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from shardq.clock import microseconds
from shardq.codec import BYTES
from shardq.context.queue_context import QueueContext
from shardq.errors import InvalidMessage, LeaseLost, OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.held import HeldSlice, Pick
from shardq.receiving.aging import in_queue_since
from shardq.receiving.confirming import confirm_held
from shardq.settings import QueueSettings
from shardq.settling.dead_letters import EXHAUSTED
from shardq.settling.settlement import Settlement
from shardq.storage.requests import Acknowledge

__all__ = ["Screening"]

_log = logging.getLogger(__name__)


class Screening:
    """Sorts out what a claim of one queue gave."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._settlement = Settlement(context, BYTES)

    def deliverable(self, held: Sequence[HeldSlice], settings: QueueSettings) -> list[HeldSlice]:
        """Drop what is too old, dead-letter what was delivered too often; the rest is for the consumer.

        Before that the keys of all of them are confirmed; where that cannot be done, everything is given back.
        """
        try:
            confirm_held(self._context, held)
        except ShardqError:
            with suppress(ShardqError):  # it comes back by itself when its lease is over
                self._settlement.release([_whole(piece) for piece in held], 0.0, started=False)
            raise
        kept = []
        for piece in held:
            try:
                if self._is_for_consumers(piece, settings):
                    kept.append(piece)
            except (StoreUnavailable, OutcomeUnknown) as error:
                _log.warning(
                    "messages of shard %s are sorted out when their lease is over: %s", piece.shard, error
                )
        return kept

    def _is_for_consumers(self, piece: HeldSlice, settings: QueueSettings) -> bool:
        if settings.retention is not None and self._age(piece) > microseconds(settings.retention):
            self._drop(piece)
        elif settings.max_deliveries is not None and piece.deliveries > settings.max_deliveries:
            self._bury(piece)
        else:
            return True
        return False

    def _age(self, piece: HeldSlice) -> int:
        return self._context.store.now() - in_queue_since(piece.bundle)

    def _drop(self, piece: HeldSlice) -> None:
        spans = piece.spans(list(range(piece.count)))
        self._context.retry(self._context.store.acknowledge, Acknowledge(piece.shard, spans))
        self._context.counters.add(expired=piece.count)

    def _bury(self, piece: HeldSlice) -> None:
        piece.deliveries -= 1  # this delivery does not take place
        try:
            self._settlement.dead_letter([_whole(piece)], EXHAUSTED)
        except LeaseLost:  # whoever has it now will do the same
            return
        except InvalidMessage as error:  # damaged in the store: it stays there, for a person to look at
            _log.error("messages of shard %s cannot be dead-lettered: %s", piece.shard, error)


def _whole(piece: HeldSlice) -> Pick:
    return Pick(piece, list(range(piece.count)))
