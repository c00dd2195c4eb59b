"""Stores with one defect each, rarer or sharper than those of the conformance suite: the campaign has to find them."""

from __future__ import annotations

import random

import msgspec

from shardq.storage.requests import Acknowledge, Append, Fenced
from shardq.storage.store import Capabilities, Store
from shardq.testing import WrappedStore
from shardq.testing.broken_stores import BROKEN_STORES

__all__ = ["DEFECTS", "ByShard"]

RARE = 1_000


class ByShard(WrappedStore):
    """Settles shard by shard, so that a defect of one verb meets every call of it."""

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self.inner.capabilities, settle_across_shards=False)


class DropsOneAckInAThousand(WrappedStore):
    """Confirms an ack now and then without doing it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._acked = random.randrange(RARE)  # so that clients that ack little have their share

    def acknowledge(self, request: Acknowledge) -> Fenced:
        spans = []
        for span in request.spans:
            before, self._acked = self._acked, self._acked + span.count
            if before // RARE == self._acked // RARE:
                spans.append(span)
        return (
            super().acknowledge(Acknowledge(request.shard, tuple(spans), request.keep)) if spans else Fenced()
        )


class AcksBeforeStoring(WrappedStore):
    """Confirms a send when the bundles are in memory, and stores them with the next one."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._waiting: list[Append] = []

    def append(self, request: Append) -> None:
        waiting, self._waiting = self._waiting, [request]
        for each in waiting:
            super().append(each)


DEFECTS: dict[str, type[WrappedStore]] = {
    each.__name__: each for each in (*BROKEN_STORES, DropsOneAckInAThousand, AcksBeforeStoring)
}
