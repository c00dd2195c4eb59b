"""Joining the settle requests of several threads at the same time into one request to the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import msgspec

from shardq.core.context.group_commit import GroupCommit, Pending
from shardq.errors import ShardqError, StoreUnavailable
from shardq.storage.abilities import CrossShardStore, Locked, Settle
from shardq.storage.requests import Acknowledge, Extend, Fenced, Forward, Release, Span
from shardq.storage.slicing import Range, covered, joined, near
from shardq.storage.store import Store

__all__ = ["SettleGroupCommit"]

_Held: TypeAlias = tuple[bytes, bytes]  # a bundle, and the token that holds messages of it

MOST_SPANS = 2_000  # in a joined request


class SettleGroupCommit:
    """Joins requests of the same time, so that several callers wait for one request to the store.

    Where the store settles across shards, all that is settled goes together. Elsewhere it is the acks, releases and
    extensions of a shard that have the same options. A caller's answer covers its own messages only. If the store
    refuses a joined request, each part is asked alone, so that no caller meets the error of another; if a lock was in
    the way of it, by each caller. ``check`` is called before each request of callers that waited: the client may have
    been closed meanwhile.
    """

    def __init__(self, store: Store, check: Callable[[], None] = lambda: None) -> None:
        self._store, self._check = store, check
        self._across_shards = store.capabilities.settle_across_shards
        self.group_commit: GroupCommit[Settle, Fenced] = GroupCommit(
            self._ask, self._ask_several, _few if self._across_shards else _disjoint
        )

    def settle(self, request: Settle) -> Fenced:
        """Carry out a request, maybe together with others."""
        try:
            if self._across_shards:  # all kinds in one step
                return self.group_commit.submit(None, request)
            if isinstance(request, Forward):
                return self._ask(request)
            # Within a shard joined requests differ in their spans only.
            return self.group_commit.submit(msgspec.structs.replace(request, spans=()), request)
        except _Apart:
            self._check()
            return self._ask(request)

    def _ask_several(self, group: Sequence[Pending[Settle, Fenced]]) -> None:
        self._check()
        if len(group) == 1:
            group[0].result = self._ask(group[0].item)
            return
        try:
            answers = self._ask_together([each.item for each in group])
        except Locked as error:
            raise _Apart(*error.args) from error
        except Exception as error:
            if isinstance(error, ShardqError) and error.retryable:
                raise
            self._ask_each(group)
            return
        for each, answer in zip(group, answers, strict=True):
            each.result = answer

    def _ask_together(self, requests: Sequence[Settle]) -> Sequence[Fenced]:
        if self._across_shards:
            return cast("CrossShardStore", self._store).settle(requests)
        spans = tuple(span for each in requests for span in _spans(each))
        fenced = self._ask(msgspec.structs.replace(requests[0], spans=spans))
        return [_own_part(fenced, _spans(each)) for each in requests]

    def _ask_each(self, group: Sequence[Pending[Settle, Fenced]]) -> None:
        for each in group:
            try:
                each.result = self._ask(each.item)
            except Exception as error:
                each.error = error

    def _ask(self, request: Settle) -> Fenced:
        match request:
            case Acknowledge():
                return self._store.acknowledge(request)
            case Extend():
                return self._store.extend(request)
            case Release():
                return self._store.release(request)
            case Forward():
                return self._store.forward(request)


class _Apart(StoreUnavailable):
    """Raised when something that only one of the callers may need is locked: each asks in its own thread."""


def _spans(request: Settle) -> tuple[Span, ...]:
    return request.acknowledge.spans if isinstance(request, Forward) else request.spans


def _few(requests: Sequence[Settle]) -> int:
    """Count the requests, from the first on, that are not too much for one transaction."""
    spans = 0
    for number, request in enumerate(requests):
        spans += len(_spans(request))
        if number and spans > MOST_SPANS:
            return number
    return len(requests)


def _disjoint(requests: Sequence[Settle]) -> int:
    """Count the requests, from the first on, that name no message twice either.

    One that names a message again waits.
    """
    seen: dict[_Held, list[Range]] = {}
    few = _few(requests)
    for number, request in enumerate(requests[:few]):
        spans = _spans(request)
        if any(_covered(span, seen) for span in spans):
            return number
        for held, ranges in _ranges(spans).items():
            seen[held] = joined([*seen.get(held, ()), *ranges])
    return few


def _own_part(fenced: Fenced, spans: Iterable[Span]) -> Fenced:
    """Return the part of an answer that is about these messages."""
    if not fenced.lost and not fenced.gone:
        return fenced
    named = list(spans)
    return Fenced(_within(fenced.lost, named), _within(fenced.gone, named))


def _within(answered: Sequence[Span], named: Sequence[Span]) -> tuple[Span, ...]:
    ranges = _ranges(answered)
    return tuple(part for span in named for part in _covered(span, ranges))


def _covered(span: Span, ranges: Mapping[_Held, Sequence[Range]]) -> list[Span]:
    whole = (span.first, span.first + span.count)
    return covered(span, near(whole, ranges.get((span.bundle_id, span.token), ())))


def _ranges(spans: Iterable[Span]) -> dict[_Held, list[Range]]:
    found: dict[_Held, list[Range]] = {}
    for span in spans:
        found.setdefault((span.bundle_id, span.token), []).append((span.first, span.first + span.count))
    return {held: joined(ranges) for held, ranges in found.items()}
