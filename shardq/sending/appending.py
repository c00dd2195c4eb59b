"""Appending bundles, again and again while the store does not answer, but not after it may have forgotten them.

A store leaves alone what is stored, and for 15 minutes what was finished. So an append can be repeated for so long, and
no longer: of an older bundle that may have been stored nobody can tell any more whether it was worked already. Of a
bundle that has a key the key tells, whenever it is read, as nobody is handed a message before its key is confirmed: the
append may follow within that time.
"""

from __future__ import annotations

from collections.abc import Collection

from shardq.context.queue_context import QueueContext
from shardq.errors import OutcomeUnknown, RepeatTooLate
from shardq.receipt import MessageId
from shardq.sharding.shard import Shard
from shardq.storage.bundle_id import made_at
from shardq.storage.requests import Append

__all__ = ["REPEATABLE_MINUTES", "append", "check_age"]

REPEATABLE_MINUTES = 14
"""After its id was made; a minute less than stores remember what was finished."""

_MINUTE = 60_000_000


def append(
    context: QueueContext,
    request: Append,
    *,
    sent_before: Collection[bytes] = (),
    keyed: Collection[bytes] = (),
    keys_read_at: int = 0,
) -> None:
    """Store the bundles. Some, by id, may be stored already; some have a key that was not confirmed at a moment.

    Raises RepeatTooLate, OutcomeUnknown, or what else keeps the store from it.
    """
    context.retry(_Appending(context, request, sent_before, keyed, keys_read_at))


def check_age(context: QueueContext, shard: Shard, bundle_id: bytes) -> None:
    """Raise RepeatTooLate when it is too late to append a bundle that may be stored already."""
    minutes = (context.store.now() - made_at(bundle_id)) // _MINUTE
    if minutes >= REPEATABLE_MINUTES:
        raise RepeatTooLate(
            f"message {MessageId(shard, bundle_id, 0)} was sent {minutes} minutes ago, and may have been worked since: "
            f"a send can be repeated for {REPEATABLE_MINUTES} minutes; see with `queue.get(id)` whether it waits, "
            "and send it without its id if its work was not done"
        )


def _check_keys(context: QueueContext, read_at: int) -> None:
    minutes = (context.store.now() - read_at) // _MINUTE
    if minutes >= REPEATABLE_MINUTES:
        raise RepeatTooLate(
            f"messages for queue {context.name!r} were held up for {minutes} minutes after their keys were read, and "
            "may have been stored by others meanwhile: do it again, which reads the keys anew"
        )


class _Appending:
    """Attempts at one append; each looks first whether it is too late."""

    def __init__(
        self,
        context: QueueContext,
        request: Append,
        sent_before: Collection[bytes],
        keyed: Collection[bytes],
        keys_read_at: int,
    ) -> None:
        self._context, self._request = context, request
        self._plain = [bundle.id for bundle in request.bundles if bundle.id not in keyed]
        self._doubtful = [bundle_id for bundle_id in self._plain if bundle_id in sent_before]
        self._has_keys, self._keys_read_at = bool(keyed), keys_read_at

    def __call__(self) -> None:
        for bundle_id in self._doubtful:
            check_age(self._context, self._request.shard, bundle_id)
        if self._has_keys:
            _check_keys(self._context, self._keys_read_at)
        try:
            self._context.store.append(self._request)
        except OutcomeUnknown:
            self._doubtful = self._plain
            raise
