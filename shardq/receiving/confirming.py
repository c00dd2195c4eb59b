"""Confirming the keys of messages before they are handed out.

A key that is not confirmed thereby belongs to a message that nobody was handed: one that is stored still, was never
stored, or was removed by hand or for its age before anybody saw it. Whoever finds such a key may store the message
under the reserved id, however late: nobody gets it a second time. A key that does not stand for the message any more
is passed over: its window is over, and another message may have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardq.context.queue_context import QueueContext
from shardq.held import HeldSlice
from shardq.storage.bundle_data import decode_keys
from shardq.storage.requests import DedupeEntry

__all__ = ["confirm_held"]


def confirm_held(context: QueueContext, held: Sequence[HeldSlice]) -> None:
    """Confirm the keys of all messages that were claimed; raises what keeps the store from it."""
    entries = [entry for piece in held for entry in _entries(piece)]
    if entries:
        context.retry(context.store.confirm_keys, context.name, entries)


def _entries(piece: HeldSlice) -> Iterator[DedupeEntry]:
    keys = decode_keys(piece.bundle.data)
    if keys is None:
        return
    if keys.move_key is not None:
        yield DedupeEntry(keys.move_key, str(piece.message_id(0)))
    if keys.dedupe_keys is not None:
        for position, key in enumerate(keys.dedupe_keys[piece.first : piece.first + piece.count]):
            if key is not None:
                yield DedupeEntry(key, str(piece.message_id(position)))
