"""The bounds of a queue: how much may wait in it, and the treatment of messages that are sent to a full one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from shardq.core.browsing import slices
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.queue_usage import PendingSize
from shardq.core.settings import QueueSettings
from shardq.errors import QueueFull, ShardqError
from shardq.storage.requests import Bundle, EntryState, Peek

__all__ = ["within_bounds"]

PAGE_MESSAGES = 1_000
_SOON = 1_000_000  # microseconds


@contextmanager
def within_bounds(context: QueueContext, bundles: Sequence[Bundle]) -> Iterator[None]:
    """Store new bundles within the block, in a queue with bounds. Raises QueueFull before it, or drops the oldest.

    Pending messages are counted at most every second (see :class:`~shardq.core.context.queue_usage.QueueUsage`).
    Messages that other clients send between two counts come on top of the bounds.
    """
    settings = context.settings
    more = PendingSize(sum(bundle.count for bundle in bundles), sum(len(bundle.data) for bundle in bundles))
    usage = context.usage
    with usage.lock.plain:
        _drop_to_bounds(context, settings, more)
        usage.begin(more)
    try:
        yield
    finally:
        with usage.lock.plain:
            usage.end(more)


def _drop_to_bounds(context: QueueContext, settings: QueueSettings, more: PendingSize) -> None:
    """Raise QueueFull, or drop messages if they were just counted: by an older count too many might go."""
    usage = context.usage
    sizes = settings.max_bytes is not None
    counted = usage.count(sizes=sizes)
    if _excess(settings, usage.known + more):
        counted = usage.count(sizes=sizes, again=True) or counted
    if settings.overflow == "drop_oldest":
        if not usage.is_put_off_known and _excess(settings, _that_stays(usage.known) + more):
            usage.put_off(_delayed(context))
        _check(context, settings, _that_stays(usage.known), more)
        if counted and (excess := _excess(settings, usage.counted + more)):
            _drop(context, excess)
    else:
        _check(context, settings, usage.known, more)


def _drop(context: QueueContext, excess: int) -> None:
    """Drop the oldest messages.

    A transaction that can claim none has those dropped that are above the bounds without it: it may be rolled back.
    Where that fails, or the queue is as new as the transaction, the next send does it.
    """
    if context.outside is None or context.store.capabilities.claims:
        context.usage.dropped(context.drop_oldest(context, excess))
        return
    with suppress(ShardqError):
        outside = context.outside(context.name)
        with outside.retry.within(0), within_bounds(outside, ()):
            pass


def _check(context: QueueContext, settings: QueueSettings, there: PendingSize, more: PendingSize) -> None:
    """Raise QueueFull if both together are above a bound."""
    if not _excess(settings, there + more):
        return
    unit, bound = ("messages", settings.max_messages), ("bytes", settings.max_bytes)
    bounds = ", ".join(f"max_{name}={most:,}" for name, most in (unit, bound) if most is not None)
    kind = "delayed messages" if settings.overflow == "drop_oldest" else "messages"
    raise QueueFull(
        f"queue {context.name!r} is full: {there.messages:,} {kind} wait in it{_bytes(settings, there)}, and "
        f"{more.messages:,} more{_bytes(settings, more)} are above {bounds}; nothing of them was stored: send them "
        "again when some were received, send fewer at a time, or raise the bound",
        messages=there.messages,
        size=there.bytes,
    )


def _bytes(settings: QueueSettings, waiting: PendingSize) -> str:
    """Write the number of bytes, for a queue that counts them."""
    return "" if settings.max_bytes is None else f" ({waiting.bytes:,} bytes)"


def _delayed(context: QueueContext) -> int:
    """Count the messages that are delayed for longer than clocks differ: their senders may have a later time."""
    soon = context.store.now() + _SOON
    return sum(
        piece.count
        for shard in context.retry(context.store.shards, context.name)
        for piece in slices(context, Peek(shard, PAGE_MESSAGES, bodies=False))
        if piece.state is EntryState.DELAYED and piece.due > soon
    )


def _that_stays(waiting: PendingSize) -> PendingSize:
    """Return the delayed messages, which are not dropped; of their bytes only the share is known."""
    share = waiting.bytes * waiting.delayed // max(waiting.messages, 1)
    return PendingSize(waiting.delayed, share, waiting.delayed)


def _excess(settings: QueueSettings, waiting: PendingSize) -> int:
    """Compute how many messages are too many, if all are alike."""
    excess = 0
    if settings.max_messages is not None:
        excess = waiting.messages - settings.max_messages
    if settings.max_bytes is not None and waiting.bytes > settings.max_bytes:
        surplus = (waiting.bytes - settings.max_bytes) * waiting.messages
        excess = max(excess, -(-surplus // waiting.bytes))
    return max(excess, 0)
