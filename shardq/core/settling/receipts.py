"""Settling messages that are known by their receipts, as :mod:`shardq.core.settling.engine` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from shardq.base.codec import BYTES, Codec
from shardq.base.receipt import Receipt
from shardq.base.texts import kind_of, shown
from shardq.core.browsing import find_slice, held_stored
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Failures
from shardq.core.held import HeldSlice, Selection, held_unseen
from shardq.core.settling.engine import SettleEngine
from shardq.errors import InvalidReceipt, InvalidSetting, LeaseLost, ShardqError
from shardq.storage.requests import EntryState, Span

__all__ = ["ack_receipts", "check_results", "dead_letter_receipts", "extend_receipts", "release_receipts"]


def ack_receipts(
    context: QueueContext,
    receipts: Iterable[str],
    results: Mapping[str, Any] | None = None,
    codec: Codec = BYTES,
) -> None:
    """Finish messages, some of them with results; one that is not stored any more counts as acked before.

    Messages with a result are read first, each by one request. With hooks all messages are read, to be shown to them.
    Messages that cannot be read are not acked.
    """
    check_results(results)
    parsed = _parsed(context, receipts)
    values = _values(context, parsed, results or {})
    read = [each for each in parsed if each in values or context.hooks is not None]
    found, failures = _read(context, read)
    unread = _unread([] if context.hooks else [each for each in parsed if each not in values])
    selections = [each.selection for each in found] + unread
    kept = [
        (each.selection, values[each.receipt])
        for each in found
        if each.may_be_held and each.receipt in values
    ]
    with _reporting_unread(failures, context, "acked"):
        SettleEngine(context, codec, by_receipt=True).ack(selections, kept)


def release_receipts(context: QueueContext, receipts: Iterable[str], delay: float) -> None:
    """Release messages, deliverable again after ``delay`` seconds."""
    _engine(context).release(_unread(_parsed(context, receipts)), delay)


def extend_receipts(context: QueueContext, receipts: Iterable[str], seconds: float) -> None:
    """Hold messages for ``seconds`` from now."""
    _engine(context).extend(_unread(_parsed(context, receipts)), seconds)


def dead_letter_receipts(context: QueueContext, receipts: Iterable[str], reason: str) -> None:
    """Move messages to the dead-letter queue; one that is not stored any more counts as moved before.

    Each message is read first, by a separate request.
    """
    found, failures = _read(context, _parsed(context, receipts))
    known = [each.selection for each in found if each.selection.held.known]
    with _reporting_unread(failures, context, "dead-lettered"):
        _engine(context).dead_letter(known, reason)


def _engine(context: QueueContext) -> SettleEngine:
    return SettleEngine(context, BYTES, by_receipt=True)


@contextmanager
def _reporting_unread(failures: Failures, context: QueueContext, done: str) -> Iterator[None]:
    """Raise after the block the error of a failed read, also in place of its LeaseLost."""
    try:
        yield
    except LeaseLost:
        if not failures:
            raise
    if failures:
        raise failures.error(
            f"messages of queue {context.name!r} were not {done}, as they could not be read,"
        )


def _unread(receipts: Iterable[Receipt]) -> list[Selection]:
    """Return the messages, of which only the receipts are known."""
    return [Selection(_unseen(receipt), [0]) for receipt in receipts]


def _parsed(context: QueueContext, receipts: Iterable[str]) -> list[Receipt]:
    if isinstance(receipts, str) or not isinstance(receipts, Iterable):
        raise InvalidReceipt(f"receipts={shown(receipts)} is {kind_of(receipts)}: give a list of receipts")
    return list(dict.fromkeys(Receipt.parse(text, context.name) for text in receipts))


def _values(
    context: QueueContext, receipts: Sequence[Receipt], results: Mapping[str, Any]
) -> dict[Receipt, Any]:
    """Return the results that are not None. Raises InvalidReceipt for one of a message that is not to be acked."""
    values = {Receipt.parse(text, context.name): value for text, value in results.items()}
    for receipt in values.keys() - set(receipts):
        raise InvalidReceipt(f"results: {receipt} is not among the receipts: give it there, too")
    return {receipt: value for receipt, value in values.items() if value is not None}


class _Found(NamedTuple):
    """A message as it is stored."""

    receipt: Receipt
    selection: Selection
    may_be_held: bool  # under the receipt's claim; when the lease has expired only an ack shows it


def _read(context: QueueContext, receipts: Iterable[Receipt]) -> tuple[list[_Found], Failures]:
    """Read the messages as they are stored; returns also the shards that could not be read."""
    found, failures = [], Failures()
    with context.retry.within():
        for receipt in receipts:
            if receipt.id.shard not in failures:
                try:
                    found.append(_stored(context, receipt))
                except ShardqError as error:
                    failures.add(receipt.id.shard, error)
    return found, failures


def _stored(context: QueueContext, receipt: Receipt) -> _Found:
    place = receipt.id
    found = find_slice(context, place)
    if found is None:
        return _Found(receipt, Selection(_unseen(receipt), [0]), may_be_held=False)
    held = held_stored(place.shard, found, receipt.token).part(place.position - found.first, 1)
    mine = found.token in (None, receipt.token) and found.state is not EntryState.PROCESSED
    return _Found(receipt, Selection(held, [0]), may_be_held=mine)


def _unseen(receipt: Receipt) -> HeldSlice:
    place = receipt.id
    return held_unseen(place.shard, Span(place.bundle_id, place.position, 1, receipt.token))


def check_results(results: object) -> None:
    """Raise InvalidSetting for anything but None and results of single messages."""
    if not isinstance(results, Mapping | None):
        raise InvalidSetting(
            f"results={shown(results)} is {kind_of(results)}: give a mapping of messages, or of their receipts, "
            "to their results"
        )
