"""Appending bundles, again and again while the store does not answer, but not after it may have forgotten them.

A store leaves alone what is stored, and for 15 minutes what was finished. So an append can be repeated for so long, and
no longer: of an older bundle that may have been stored nobody can tell any more whether it was worked already. Bundles
that have a key are repeated at any time, as nobody is handed a message before its key is confirmed.
"""

from __future__ import annotations

from collections.abc import Collection

from shardq.delivery.context import QueueContext
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
) -> None:
    """Store the bundles; some, by id, may be stored already, and some have a key.

    Raises RepeatTooLate, OutcomeUnknown, or what else keeps the store from it.
    """
    context.retry(_Appending(context, request, sent_before, keyed))


def check_age(context: QueueContext, shard: Shard, bundle_id: bytes) -> None:
    """Raise RepeatTooLate when it is too late to append a bundle that may be stored already."""
    minutes = (context.store.now() - made_at(bundle_id)) // _MINUTE
    if minutes >= REPEATABLE_MINUTES:
        raise RepeatTooLate(
            f"message {MessageId(shard, bundle_id, 0)} was sent {minutes} minutes ago, and may have been worked since: "
            f"a send can be repeated for {REPEATABLE_MINUTES} minutes; see with `queue.get(id)` whether it waits, "
            "and send it without its id if its work was not done"
        )


class _Appending:
    """Attempts at one append; from the first that was not answered on, each looks at the clock first."""

    def __init__(
        self, context: QueueContext, request: Append, sent_before: Collection[bytes], keyed: Collection[bytes]
    ) -> None:
        self._context, self._request = context, request
        self._checked = [bundle.id for bundle in request.bundles if bundle.id not in keyed]
        self._doubtful = [bundle_id for bundle_id in self._checked if bundle_id in sent_before]

    def __call__(self) -> None:
        for bundle_id in self._doubtful:
            check_age(self._context, self._request.shard, bundle_id)
        try:
            self._context.store.append(self._request)
        except OutcomeUnknown:
            self._doubtful = self._checked
            raise
