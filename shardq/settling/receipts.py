"""Settling messages that are known by their receipts, as :mod:`shardq.settling.settlement` does."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from shardq.codec import BYTES
from shardq.context.queue_context import QueueContext
from shardq.context.retry import Failures
from shardq.errors import InvalidReceipt, LeaseLost, ShardqError
from shardq.held import HeldSlice, Selection, held_unseen
from shardq.receipt import Receipt
from shardq.settling.settlement import Settlement
from shardq.storage.requests import ClaimedSlice, Span

__all__ = ["ack_receipts", "dead_letter_receipts", "extend_receipts", "release_receipts"]


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


def dead_letter_receipts(context: QueueContext, receipts: Iterable[str], reason: str) -> None:
    """Move messages to the dead-letter queue; one that is not stored any more counts as moved before.

    Each message is read first, in a request of its own.
    """
    selections, failures = _shown(context, _parsed(context, receipts))
    try:
        _settlement(context).dead_letter([each for each in selections if each.held.known], reason)
    except LeaseLost:
        if not failures:
            raise
    if failures:
        raise failures.error(
            f"messages of queue {context.name!r} were not dead-lettered, as they could not be read,"
        )


def _settlement(context: QueueContext) -> Settlement:
    return Settlement(context, BYTES, by_receipt=True)


def _selections(context: QueueContext, receipts: Iterable[str]) -> list[Selection]:
    return [Selection(_unseen(receipt), [0]) for receipt in _parsed(context, receipts)]


def _parsed(context: QueueContext, receipts: Iterable[str]) -> list[Receipt]:
    if isinstance(receipts, str):
        raise InvalidReceipt(f"receipts={reprlib.repr(receipts)} is one str: give a list of receipts")
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
        return _unseen(receipt)
    claimed = ClaimedSlice(found.bundle, place.position, 1, found.deliveries)
    return HeldSlice(place.shard, claimed, receipt.token, found.due)


def _unseen(receipt: Receipt) -> HeldSlice:
    place = receipt.id
    return held_unseen(place.shard, Span(place.bundle_id, place.position, 1, receipt.token))
