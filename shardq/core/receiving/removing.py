"""Removing messages that are not to be delivered: expired ones, leftovers, and the oldest of a full queue."""

from __future__ import annotations

import heapq
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile

import msgspec

from shardq.base.clock import microseconds
from shardq.base.log import Log
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.browsing import remove, slices
from shardq.core.context.decision_log import DecisionLog
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Failures, claim_patiently
from shardq.core.held import HeldSlice, count_of
from shardq.core.logs.event_log import record_purged
from shardq.core.receiving.delivery_filter import DeliveryFilter, is_expired
from shardq.core.settling.leases import JUMP
from shardq.core.settling.operations import OVERFLOW
from shardq.core.settling.settle import SettleRun, release_uncounted
from shardq.errors import ShardqError
from shardq.storage.requests import Claim, EntryState, Peek, StoredSlice, Sweep
from shardq.storage.writing import reporting_done

__all__ = ["PAGE_MESSAGES", "drop_oldest", "due_slices", "expire", "purge", "sweep_steps"]

_log = Log(__name__)

PAGE_MESSAGES = 1_000
CLAIM_LEASE = 60_000_000  # microseconds
TOKEN_BYTES = 16
_PREFIX = "shardq-trim:"
_TURN = 1_000_000
"""For how long, in microseconds, one client alone drops messages. Two that counted the same would drop twice that."""


def sweep_steps(context: QueueContext) -> Iterator[int]:
    """Remove expired history and leftovers of crashed clients, some at each step; yields how many things."""
    history_before = context.store.now() - microseconds(context.settings.history_retention)
    while found := context.retry(context.store.sweep, Sweep(context.name, history_before)):
        yield found


def purge(context: QueueContext) -> int:
    """Remove all messages of a queue but its history; returns how many. See :meth:`shardq.Queue.purge`."""
    purged, unanswered = 0, False

    def done() -> str:
        if not purged and not unanswered:
            return ""
        return f"{'some' if unanswered else purged} messages are removed, others may be left: repeat the call"

    with reporting_done(done):
        shards = context.retry(context.store.shards, context.name)
        if not shards and context.outside is not None:
            # A store that refuses a purge in a transaction refuses it for an empty queue, too.
            shards = (Shard(context.name, 0, 0),)
        for shard in shards:
            answer = context.retry.ask(context.store.purge, shard)
            purged += answer.value
            unanswered = unanswered or answer.after_unknown
    record_purged(context)
    return purged


def expire(context: QueueContext) -> int:
    """Drop expired messages that are not held; returns how many messages.

    Messages at the front of a shard are claimed, 1,000 at a time, and dropped or dead-lettered. The others, such as
    those that are not due yet, are removed one by one. Where they are to become dead letters, due ones are claimed
    with all messages before them, which are released. The others stay until they are due.

    When a shard fails, the others are still done; the error is raised at the end.
    """
    removed, failures = 0, Failures()
    for shard in context.retry(context.store.shards, context.name):
        try:
            removed += _expire_first(context, shard) + _expire_rest(context, shard)
        except ShardqError as error:
            failures.add(shard, error)
    if failures:
        raise failures.error(f"messages of queue {context.name!r} that have expired were not removed")
    return removed


def _expire_first(context: QueueContext, shard: Shard) -> int:
    removed = 0
    while count := _expired_in_front(context, shard):
        found = _claim_and_expire(context, shard, count)
        if not found:
            break
        removed += found
    return removed


def _expired_in_front(context: QueueContext, shard: Shard) -> int:
    """Count the messages that a claim would get before the first that has not expired."""
    page = context.retry(context.store.peek, Peek(shard, PAGE_MESSAGES, bodies=False))
    claimable = (piece for piece in page.slices if _is_due(context, piece))
    found = takewhile(lambda piece: is_expired(context, piece.bundle), claimable)
    return min(count_of(found), PAGE_MESSAGES)


def _expire_rest(context: QueueContext, shard: Shard) -> int:
    if context.settings.dead_letter_expired:
        return _claim_and_expire(context, shard, _until_last_expired(context, shard))
    return _remove_rest(context, shard)


def _until_last_expired(context: QueueContext, shard: Shard) -> int:
    """Count the messages that a claim has to take to get the last that has expired; 0 if none has.

    In a shard of groups that is all: a claim takes the first of every group before others.
    """
    count = needed = 0
    for piece in slices(context, Peek(shard, PAGE_MESSAGES, bodies=False)):
        if _is_due(context, piece):
            count += piece.count
            needed = count if is_expired(context, piece.bundle) else needed
    return count if needed and shard.is_grouped else needed


def _claim_and_expire(context: QueueContext, shard: Shard, count: int) -> int:
    """Claim this number of messages, drop the expired ones, and release the others in their places."""
    removed, kept = 0, list[HeldSlice]()
    try:
        while count > 0 and (held := claim_unseen(context, shard, min(count, PAGE_MESSAGES))):
            delivered = DeliveryFilter(context).deliverable(held, context.settings)
            kept += delivered
            claimed = count_of(held)
            removed += claimed - count_of(delivered)
            count -= claimed
    finally:
        release_uncounted(context, kept)
    return removed


def claim_unseen(context: QueueContext, shard: Shard, count: int) -> list[HeldSlice]:
    """Claim messages that are not to be worked on."""
    token = secrets.token_bytes(TOKEN_BYTES)
    request = Claim(shard, token, count, CLAIM_LEASE, "sweep", started=False)
    claimed = claim_patiently(context.retry, context.store, request)
    return [HeldSlice(shard, piece, token, claimed.lease_until, started=False) for piece in claimed.slices]


def _remove_rest(context: QueueContext, shard: Shard) -> int:
    removed = sum(
        remove(context, MessageId(shard, piece.bundle.id, position), event="expired")
        for piece in _found_expired(context, shard)
        for position in range(piece.first, piece.first + piece.count)
    )
    context.counters.add(expired=removed)
    return removed


def _found_expired(context: QueueContext, shard: Shard) -> Iterator[StoredSlice]:
    for piece in slices(context, Peek(shard, PAGE_MESSAGES, bodies=False)):
        if not _is_held(context, piece) and is_expired(context, piece.bundle):
            yield piece


def due_slices(
    context: QueueContext, shard: Shard, page_messages: int = PAGE_MESSAGES
) -> Iterator[tuple[StoredSlice, bool]]:
    """Yield due messages of a shard that are not held, in delivery order, without bodies.

    And whether a claim gets them. It does not get messages behind one of their group that is not due or held.
    """
    held_up = set[str]()  # groups
    for piece in slices(context, Peek(shard, page_messages, bodies=False)):
        group = piece.bundle.group
        if _is_due(context, piece):
            yield piece, group not in held_up
        elif group:
            held_up.add(group)


def _is_due(context: QueueContext, piece: StoredSlice) -> bool:
    """Return whether a slice is due, also where it waits behind another message of its group."""
    return piece.state is not EntryState.DELAYED and not _is_held(context, piece)


def _is_held(context: QueueContext, piece: StoredSlice) -> bool:
    return piece.state is EntryState.IN_FLIGHT and piece.due > context.store.now()


def drop_oldest(context: QueueContext, count: int) -> int:
    """Drop about ``count`` ready messages, the oldest first; returns how many: 0 while another client does it.

    Of each shard the first in the order of delivery go. Messages in flight and delayed ones are not touched. Messages
    that wait behind such a message of their group are removed one by one, up to 1,000 at a time. Messages that cannot
    be dropped because the store fails are dropped another time.
    """
    try:
        if context.outside is None and not _has_turn(context):
            return 0
        chosen = _chosen(context, count)
        dropped = sum(_drop(context, shard, number) for shard, number in _claimable(chosen).items())
        return dropped + _remove(context, (each for each in chosen if each.is_stuck))
    except ShardqError as error:
        _log.warning(
            "queue %s has more than its bounds allow, which was not dropped: %s", context.name, error
        )
        return 0


def _has_turn(context: QueueContext) -> bool:
    """Return whether this client drops now, and no other one.

    A turn that was taken while the clock was ahead would last for as long as that: another key takes its place.
    """
    log, mine, key = DecisionLog(context, _PREFIX), context.usage.owner.get(), "turn"
    while True:
        now = context.store.now()
        owner, _, moment = log.decide(key, f"{mine} {now}", _TURN).value.partition(" ")
        if owner == mine:
            return True
        if int(moment or 0) <= now + JUMP:  # older clients store none
            return False
        key = f"turn after {moment}"


class _Ready(msgspec.Struct, frozen=True):
    """Messages of a slice that is ready."""

    sent: int  # not before what comes before it in its shard
    shard: Shard
    bundle_id: bytes
    first: int
    count: int
    is_stuck: bool  # behind a message of its group that no claim gets


def _chosen(context: QueueContext, count: int) -> list[_Ready]:
    """Choose the oldest ``count`` messages."""
    shards = context.retry(context.store.shards, context.name)
    chosen: list[_Ready] = []
    ready = (_ready(context, shard, count) for shard in shards)
    for each in heapq.merge(*ready, key=lambda each: (each.sent, each.shard)):
        chosen.append(msgspec.structs.replace(each, count=min(each.count, count)))
        count -= chosen[-1].count
        if not count:
            break
    return chosen


def _ready(context: QueueContext, shard: Shard, count: int) -> Iterator[_Ready]:
    """Yield the ready slices of a shard, in the order of delivery."""
    latest = 0
    for piece, is_claimable in due_slices(context, shard, min(count, PAGE_MESSAGES)):
        latest = max(latest, piece.bundle.enqueued_at)  # what comes behind goes after it
        yield _Ready(latest, shard, piece.bundle.id, piece.first, piece.count, not is_claimable)


def _claimable(chosen: Iterable[_Ready]) -> Counter[Shard]:
    """Count the messages of each shard that a claim gets."""
    counts: Counter[Shard] = Counter()
    for each in chosen:
        if not each.is_stuck:
            counts[each.shard] += each.count
    return counts


def _drop(context: QueueContext, shard: Shard, count: int) -> int:
    dropped = 0
    while dropped < count:
        held = claim_unseen(context, shard, min(count - dropped, PAGE_MESSAGES))
        settling = SettleRun(context, OVERFLOW).run([piece.select() for piece in held])
        settling.raise_if_failed()
        if not settling.done:
            break
        dropped += settling.done_count
    return dropped


def _remove(context: QueueContext, stuck: Iterable[_Ready]) -> int:
    """Remove messages one by one. One that was received meanwhile is worked on, and cannot come again."""
    ids = (
        MessageId(each.shard, each.bundle_id, each.first + position)
        for each in stuck
        for position in range(each.count)
    )
    removed = sum(remove(context, identity, event="dropped") for identity in islice(ids, PAGE_MESSAGES))
    context.counters.add(dropped=removed)
    return removed
