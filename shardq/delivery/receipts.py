"""Ack, release and extend by receipt, in a process that did not receive the messages itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shardq.clock import microseconds
from shardq.delivery.context import QueueContext
from shardq.delivery.outgoing import check_delay
from shardq.delivery.retry import Answer
from shardq.delivery.settlement import MAX_LEASE_SECONDS
from shardq.errors import LeaseLost
from shardq.receipt import Receipt
from shardq.settings import check_number
from shardq.sharding.shard import Shard
from shardq.storage.requests import Acknowledge, Extend, Fenced, Release, Span

__all__ = ["ack_receipts", "extend_receipts", "release_receipts"]

_Spans = tuple[Span, ...]


def ack_receipts(context: QueueContext, receipts: Iterable[str]) -> None:
    """Finish messages; one that is not stored any more counts as acked before."""
    keep = context.settings.history_retention > 0

    def ack(shard: Shard, spans: _Spans) -> Answer[Fenced]:
        return context.retry.ask(context.store.acknowledge, Acknowledge(shard, spans, keep))

    done = _settle(context, receipts, ack, lambda answer: answer.value.lost)
    context.counters.add(acked=done)


def release_receipts(context: QueueContext, receipts: Iterable[str], delay: float) -> None:
    """Give messages back, deliverable again after so many seconds."""
    delay_microseconds = check_delay(delay)

    def release(shard: Shard, spans: _Spans) -> Answer[Fenced]:
        return context.retry.ask(context.store.release, Release(shard, spans, delay_microseconds))

    done = _settle(context, receipts, release, _lost_or_gone)
    context.counters.add(released=done)


def extend_receipts(context: QueueContext, receipts: Iterable[str], seconds: float) -> None:
    """Hold messages for so many seconds from now on."""
    check_number("seconds", seconds, 0.0, MAX_LEASE_SECONDS)

    def extend(shard: Shard, spans: _Spans) -> Answer[Fenced]:
        return context.retry.ask(context.store.extend, Extend(shard, spans, microseconds(seconds)))

    done = _settle(context, receipts, extend, lambda answer: (*answer.value.lost, *answer.value.gone))
    context.counters.add(extended=done)


def _lost_or_gone(answer: Answer[Fenced]) -> Sequence[Span]:
    """After an unanswered attempt, that attempt may be why nothing is held any more."""
    return () if answer.after_unknown else (*answer.value.lost, *answer.value.gone)


def _settle(
    context: QueueContext,
    texts: Iterable[str],
    call: Callable[[Shard, _Spans], Answer[Fenced]],
    lost_spans: Callable[[Answer[Fenced]], Sequence[Span]],
) -> int:
    """Settle by shard; returns how many were done, or raises LeaseLost with the receipts that were not."""
    receipts = dict.fromkeys(Receipt.parse(text, context.name) for text in texts)
    by_shard: dict[Shard, list[Receipt]] = {}
    for receipt in receipts:
        by_shard.setdefault(receipt.id.shard, []).append(receipt)
    lost: list[str] = []
    for shard, group in by_shard.items():
        spans = lost_spans(call(shard, tuple(receipt.span for receipt in group)))
        lost += [str(receipt) for receipt in group if any(_covers(span, receipt) for span in spans)]
    if lost:
        context.counters.add(lease_lost=len(lost))
        raise LeaseLost(
            f"{len(lost)} of {len(receipts)} messages of queue {context.name!r} are no longer held, first {lost[0]}: "
            "their lease was over and they are delivered again",
            lost,
        )
    return len(receipts)


def _covers(span: Span, receipt: Receipt) -> bool:
    return (
        span.bundle_id == receipt.id.bundle_id
        and span.token == receipt.token
        and span.first <= receipt.id.position < span.first + span.count
    )
