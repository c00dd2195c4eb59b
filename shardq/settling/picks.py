"""What an ack, release, extension or move is about, by shard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardq.held import Pick
from shardq.sharding.shard import Shard
from shardq.storage.requests import Span

__all__ = ["by_shard", "spans_of"]


def by_shard(picks: Iterable[Pick]) -> dict[Shard, list[Pick]]:
    """The picks that name any message, together with the others of their shard."""
    groups: dict[Shard, list[Pick]] = {}
    for pick in picks:
        if pick.positions:
            groups.setdefault(pick.held.shard, []).append(pick)
    return groups


def spans_of(picks: Sequence[Pick]) -> tuple[Span, ...]:
    """The picks as a store's request names them."""
    return tuple(span for pick in picks for span in pick.held.spans(pick.positions))
