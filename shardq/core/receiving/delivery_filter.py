"""The checks between a claim and its consumer: a message may have expired, come too often, or lost its unique key.

First the dedupe keys of all claimed messages are confirmed. So a key that is not confirmed belongs to a message that
was not received yet. A sender that finds such a key may store the message under the reserved id, however late: it is
received only once. A key that no longer names the message is ignored: its window has ended, and another message may
have it.

A message whose unique key another one has is kept back: the client that took the key or lost it removes the message.
If that client died, the message stays until its send can no longer be reported as done, and is dropped then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from shardq.base.clock import microseconds
from shardq.base.codec import BYTES, UNREADABLE
from shardq.base.log import Log
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.unique_keys import UniqueKeys
from shardq.core.held import HeldSlice, SettleState
from shardq.core.settings import QueueSettings
from shardq.core.settling.dead_letters import EXHAUSTED, EXPIRED
from shardq.core.settling.engine import SettleEngine
from shardq.core.settling.moves import DeadLetters
from shardq.core.settling.operations import DROP, RETURN, SUPERSEDE, SettleOperation
from shardq.core.settling.settle import SettleRun, release_uncounted
from shardq.core.settling.stepwise import entries_of
from shardq.errors import InvalidMessage, LeaseLost, OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.bundles import BundleKeys, made_at, read_keys
from shardq.storage.requests import Bundle, DedupeEntry, expired

__all__ = ["DeliveryFilter", "count_received", "expires_before", "is_expired"]

_log = Log(__name__)

REMEMBERED = 900_000_000  # microseconds; a send that may be stored can be repeated for a minute less
KEPT_BACK = 10_000_000  # microseconds


class DeliveryFilter:
    """Decides which of the claimed messages are delivered.

    Claims ``by_name`` may be repeated by another process. Messages that such a claim has delivered are left alone
    where keys cannot be confirmed, and messages that would block their groups become dead letters.
    """

    def __init__(self, context: QueueContext, *, by_name: bool = False) -> None:
        self._context, self._by_name = context, by_name
        self._engine = SettleEngine(context, BYTES)
        self.seen_large = False  # a message with a large body was among those that were claimed

    def deliverable(self, held: Sequence[HeldSlice], settings: QueueSettings) -> list[HeldSlice]:
        """Return the deliverable messages. Others lost their key and are held back, expired or are exhausted.

        If the keys cannot be confirmed, all are released, unless they were claimed by name, and the error is raised. If
        a message of a group can be neither delivered nor taken away, those that follow it are released.
        """
        most = settings.max_deliveries
        doubtful = settings.retention is not None
        keyed: list[tuple[HeldSlice, BundleKeys]] = []
        for piece in held:
            bundle = piece.bundle
            if bundle.expires_at is not None or (most is not None and piece.deliveries > most):
                doubtful = True
            try:
                keys = read_keys(bundle.data)
            except UNREADABLE:  # its reader gets the error
                continue
            if (
                keys.dedupe_keys is not None
                or keys.move_key is not None
                or keys.unique_key is not None
                or keys.large is not None
            ):
                keyed.append((piece, keys))
        lost = self._confirm_or_release(keyed, held) if keyed else set()
        if not lost and not doubtful:
            return list(held)
        return self._kept(held, lambda piece: self._is_for_consumers(piece, settings, lost=piece in lost))

    def _confirm_or_release(
        self, keyed: Sequence[tuple[HeldSlice, BundleKeys]], held: Sequence[HeldSlice]
    ) -> set[HeldSlice]:
        try:
            return self._confirm_keys(keyed)
        except ShardqError:
            if not self._by_name:
                with suppress(ShardqError):  # it comes back automatically when its lease expires
                    release_uncounted(self._context, held)
            raise

    def unexpired(self, held: Sequence[HeldSlice]) -> list[HeldSlice]:
        """Return those of the messages that have not expired while they waited for a consumer; the others go."""
        settings = self._context.settings
        return self._kept(held, lambda piece: not self._finish_if_expired(piece, settings))

    def _kept(self, held: Sequence[HeldSlice], wanted: Callable[[HeldSlice], bool]) -> list[HeldSlice]:
        kept = []
        stuck = set[str]()  # groups
        behind = []
        for piece in held:
            group = piece.bundle.group
            if group in stuck:
                behind.append(piece)
            elif _is_wanted(piece, wanted):
                kept.append(piece)
            elif group and len(piece.positions(SettleState.FINISHED)) < piece.count:
                stuck.add(group)
        if behind:
            with suppress(ShardqError):  # they come back automatically when their lease expires
                release_uncounted(self._context, behind)
        return kept

    def _confirm_keys(self, keyed: Sequence[tuple[HeldSlice, BundleKeys]]) -> set[HeldSlice]:
        """Confirm dedupe keys and unique keys; returns the messages that lost their unique keys."""
        context = self._context
        entries: list[DedupeEntry] = []
        unique: list[HeldSlice] = []
        for piece, keys in keyed:
            if keys.unique_key is not None:
                piece.unique_key = keys.unique_key
                unique.append(piece)
            if keys.large is not None:
                piece.large = keys.large
                self.seen_large = True
            if keys.move_key is not None or keys.dedupe_keys is not None:
                entries += entries_of(piece, keys)
        if entries:
            context.retry(context.store.confirm_keys, context.name, entries)
        if not unique:
            return set()
        wanted = [(str(piece.unique_key), str(piece.message_id(0))) for piece in unique]
        granted = UniqueKeys(context).grant(wanted, delivering=True)
        return {piece for piece, own in zip(unique, granted, strict=True) if not own}

    def _is_for_consumers(self, piece: HeldSlice, settings: QueueSettings, *, lost: bool) -> bool:
        if self._finish_if_expired(piece, settings):
            return False
        if lost:
            self._keep_back(piece)
            return False
        if settings.max_deliveries is not None and piece.deliveries > settings.max_deliveries:
            self._dead_letter(piece, EXHAUSTED)
            return False
        return True

    def _finish_if_expired(self, piece: HeldSlice, settings: QueueSettings) -> bool:
        """Drop or dead-letter messages that have expired; False for others."""
        if not is_expired(self._context, piece.bundle, settings):
            return False
        if settings.dead_letter_expired:
            self._dead_letter(piece, EXPIRED)
        else:
            self._drop(piece, DROP)
        return True

    def _keep_back(self, piece: HeldSlice) -> None:
        if self._context.store.now() - made_at(piece.bundle.id) > REMEMBERED:
            self._drop(piece, SUPERSEDE)
        else:
            SettleRun(self._context, RETURN, duration=KEPT_BACK).run([piece.select()])

    def _drop(self, piece: HeldSlice, operation: SettleOperation) -> None:
        SettleRun(self._context, operation).run([piece.select()]).raise_if_failed()

    def _dead_letter(self, piece: HeldSlice, reason: str) -> None:
        piece.deliveries -= 1  # this delivery does not take place
        try:
            if reason == EXPIRED or self._by_name:
                self._engine.move([piece.select()], DeadLetters(self._context, reason))
            else:
                self._engine.dead_letter([piece.select()], reason)
        except LeaseLost:  # whoever has it now will do the same
            return
        except InvalidMessage as error:  # damaged in the store: it stays there, for a person to inspect
            _log.error("messages of shard %s cannot be dead-lettered: %s", piece.shard, error)
        except BaseException:  # tried again while it is held
            piece.deliveries += 1
            raise


def expires_before(settings: QueueSettings, now: int) -> int | None:
    """Return the moment before which messages must have come that are too old for the queue; None: none are."""
    return None if settings.retention is None else now - microseconds(settings.retention)


def is_expired(context: QueueContext, bundle: Bundle, settings: QueueSettings | None = None) -> bool:
    """Return whether a bundle's messages are not delivered any more: their ttl has ended, or the queue's retention.

    That is decided by the settings; None: by those of the queue as they are now.
    """
    settings = settings or context.settings
    if bundle.expires_at is None and settings.retention is None:
        return False  # as almost always: the time is not asked for
    now = context.store.now()
    return expired(bundle, now, expires_before(settings, now))


def _is_wanted(piece: HeldSlice, wanted: Callable[[HeldSlice], bool]) -> bool:
    """Return whether a message is to be delivered; False too for one that could not be taken away."""
    try:
        return wanted(piece)
    except (StoreUnavailable, OutcomeUnknown) as error:
        _log.warning(
            "messages of shard %s were not dropped or dead-lettered, trying again when their lease expires: %s",
            piece.shard,
            error,
        )
        return False


def count_received(context: QueueContext, held: Sequence[HeldSlice]) -> None:
    """Count messages that were received from a queue, or that a read found none."""
    if not held:
        context.counters.add(empty_reads=1)
        return
    received = redelivered = acked = 0
    for piece in held:
        received += piece.count
        if piece.deliveries > 1:
            redelivered += piece.count
        if piece.finished:
            acked += piece.count
    context.counters.add(received=received, redelivered=redelivered, acked=acked)
    if context.observer is None:
        return
    try:
        now = context.store.now()
    except StoreUnavailable:  # its clock is in doubt
        return
    waits = [
        (now - max(each.bundle.due, each.bundle.enqueued_at), each.count)
        for each in held
        if each.deliveries <= 1
    ]
    context.observer.received(context.name, waits)
