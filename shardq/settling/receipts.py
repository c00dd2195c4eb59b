"""Ack, release and extend by receipt, in a process that did not receive the messages itself."""

from __future__ import annotations

from collections.abc import Iterable

from shardq.codec import BYTES
from shardq.context.failures import Failures
from shardq.context.queue_context import QueueContext
from shardq.errors import LeaseLost, ShardqError
from shardq.held import HeldSlice, Selection, held_unseen
from shardq.receipt import Receipt
from shardq.settling.settlement import Settlement
from shardq.storage.requests import ClaimedSlice

__all__ = ["ack_receipts", "extend_receipts", "release_receipts"]


def ack_receipts(context: QueueContext, receipts: Iterable[str]) -> None:
    """Finish messages; one that is not stored any more counts as acked before.

    Where there are hooks each message is read first, to be shown to them; what cannot be read is not acked.
    """
    if context.hooks is None:
        _settlement(context).ack(_selections(context, receipts))
        return
    selections, failures = _shown(context, _parsed(context, receipts))
    try:
        _settlement(context).ack(selections)
    except LeaseLost:
        if not failures:
            raise
    if failures:
        raise failures.error(f"messages of queue {context.name!r} were not acked, as they could not be read,")


def release_receipts(context: QueueContext, receipts: Iterable[str], delay: float) -> None:
    """Give messages back, deliverable again after so many seconds."""
    _settlement(context).release(_selections(context, receipts), delay)


def extend_receipts(context: QueueContext, receipts: Iterable[str], seconds: float) -> None:
    """Hold messages for so many seconds from now on."""
    _settlement(context).extend(_selections(context, receipts), seconds)


def _settlement(context: QueueContext) -> Settlement:
    return Settlement(context, BYTES, by_receipt=True)


def _selections(context: QueueContext, receipts: Iterable[str]) -> list[Selection]:
    return [
        Selection(held_unseen(receipt.id.shard, receipt.span), [0]) for receipt in _parsed(context, receipts)
    ]


def _parsed(context: QueueContext, receipts: Iterable[str]) -> list[Receipt]:
    return list(dict.fromkeys(Receipt.parse(text, context.name) for text in receipts))


def _shown(context: QueueContext, receipts: Iterable[Receipt]) -> tuple[list[Selection], Failures]:
    """The messages as they are stored, and the shards that could not be read."""
    selections, failures = [], Failures()
    with context.retry.within():
        for receipt in receipts:
            if receipt.id.shard not in failures:
                try:
                    selections.append(Selection(_stored(context, receipt), [0]))
                except ShardqError as error:
                    failures.add(receipt.id.shard, error)
    return selections, failures


def _stored(context: QueueContext, receipt: Receipt) -> HeldSlice:
    place = receipt.id
    found = context.retry(context.store.find, place.shard, place.bundle_id, place.position)
    if found is None:
        return held_unseen(place.shard, receipt.span)
    claimed = ClaimedSlice(found.bundle, place.position, 1, found.deliveries)
    return HeldSlice(place.shard, claimed, receipt.token, found.due)
