"""Leases that were begun while the clock was ahead, which would last until the clock is there again.

Whoever was alive then extends its lease. So it is enough to let each end as long after now as it lasted: a holder that
is alive keeps it, and what another one left behind comes free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import groupby

from shardq.base.clock import seconds
from shardq.base.shard import Shard
from shardq.core.browsing import slices
from shardq.core.context.queue_context import QueueContext
from shardq.core.settling.settle import Settling
from shardq.core.settling.verbs import EXTEND
from shardq.held import HeldSlice, Selection
from shardq.storage.requests import ClaimedSlice, EntryState, Peek, StoredSlice

__all__ = ["JUMP", "shorten_fixed_leases", "shorten_leases"]

_log = logging.getLogger(__name__)

_PAGE = 1_000
JUMP = 10_000_000
"""Microseconds by which something has to lie ahead of the clock before it is taken for a jump."""


def shorten_leases(
    context: QueueContext,
    found: Iterable[tuple[Shard, StoredSlice]],
    lasted: Callable[[StoredSlice], int | None],
) -> int:
    """Let leases end as long after now as they lasted; returns of how many messages.

    ``lasted`` tells for how many microseconds a lease was begun; None of one that is right.
    """
    chosen = [
        (lease, _held(shard, piece))
        for shard, piece in found
        if piece.state is EntryState.IN_FLIGHT and (lease := lasted(piece)) is not None
    ]
    messages = 0
    for lease, group in groupby(sorted(chosen, key=lambda each: each[0]), key=lambda each: each[0]):
        settling = Settling(context, EXTEND, duration=lease).run([each for _, each in group])
        messages += sum(len(each.positions) for each in settling.done)
    if messages:
        _log.warning(
            "the clock was ahead: %d leases of queue %s that were begun then end within %g seconds now",
            messages,
            context.name,
            seconds(max(lease for lease, _ in chosen)),
        )
    return messages


def shorten_fixed_leases(context: QueueContext, lease: int) -> int:
    """Shorten those of a queue in which every lease is begun for so many microseconds; returns of how many messages."""
    latest = context.store.now() + lease + JUMP
    found = (
        (shard, piece)
        for shard in context.retry(context.store.shards, context.name)
        for piece in slices(context, Peek(shard, _PAGE, bodies=False, held=True))
    )
    return shorten_leases(context, found, lambda piece: lease if piece.due > latest else None)


def _held(shard: Shard, piece: StoredSlice) -> Selection:
    assert piece.token is not None
    claimed = ClaimedSlice(piece.bundle, piece.first, piece.count, piece.deliveries)
    held = HeldSlice(shard, claimed, piece.token, piece.due, started=piece.started)
    return Selection(held, range(piece.count))
