"""Editing a pending message: another body, headers, priority or due time, in one atomic step."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

from shardq.base.codec import BYTES, Codec
from shardq.base.outgoing_message import HeaderValue, OutgoingMessage
from shardq.base.receipt import MessageId
from shardq.core.browsing import find_slice, held_stored, read_properties
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import HeldSlice, Selection
from shardq.core.sending.appending import REPLACE, admit
from shardq.core.sending.planned_bundles import sizes
from shardq.core.sending.prepared import prepare_options
from shardq.core.settling.engine import SettleEngine
from shardq.core.settling.moves import Changes, InPlace
from shardq.core.settling.operations import EDIT
from shardq.core.settling.stepwise import Moved, entries_of
from shardq.errors import InvalidMessage, InvalidSetting, LeaseLost, MessageNotPending
from shardq.storage.bundles import read_keys
from shardq.storage.requests import PENDING, EntryState, StoredSlice

__all__ = ["EditArguments", "edit"]


class _Edited(InPlace):
    """The message as it is to be. It has the same id in every attempt."""

    def __init__(self, source: QueueContext, changes: Changes, held: HeldSlice, due: int) -> None:
        super().__init__(source, EDIT, changes)
        self._due, self.id = due, MessageId(held.shard, source.ids.new(source.store.now()), 0)

    def due(self, moved: Moved) -> int:  # noqa: ARG002
        """Return the moment from which it is delivered."""
        return self._due

    def _new_id(self, selection: Selection) -> bytes:  # noqa: ARG002
        return self.id.bundle_id


class EditArguments(TypedDict, total=False):
    """Properties that an edit changes, as keyword arguments of :meth:`shardq.Queue.edit`. None changes nothing."""

    body: Any
    headers: Mapping[str, HeaderValue] | None
    priority: int | None
    due: datetime | None
    delay: float | None


def edit(
    context: QueueContext, identity: MessageId, wanted: EditArguments, codec: Codec = BYTES
) -> MessageId:
    """Exchange a pending message for one with other properties; returns the new id. See :meth:`shardq.Queue.edit`."""
    given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if unknown := given.keys() - EditArguments.__annotations__.keys():
        raise InvalidSetting(
            f"edit changes no {min(unknown)!r}: give a body, headers, a priority, a due time or a delay"
        )
    if not given:
        raise InvalidSetting("edit changes nothing: give a body, headers, a priority, a due time or a delay")
    options = prepare_options(OutgoingMessage(**{"body": None} | given), context.name)
    changes = Changes(
        codec.encode(given["body"]) if "body" in given else None,
        (options.headers or {}) if "headers" in given else None,
        options.priority if "priority" in given else None,
    )
    held = _pending(context, identity)
    sets_due = given.keys() & {"due", "delay"}
    due = options.moment(context.store.now()) if sets_due else held.lease_until
    move = _Edited(context, changes, held, due)
    selection = Selection(held, [identity.position - held.first])
    admit(context, REPLACE, max(sizes(move.changed(selection))))
    # As before a delivery: a repeated send or move that finds a key unconfirmed would store the message again.
    if entries := list(entries_of(held, read_keys(held.bundle.data))):
        context.retry(context.store.confirm_keys, context.name, entries)
    try:
        SettleEngine(context, BYTES, by_receipt=True).move([selection], move)
    except LeaseLost as error:
        raise MessageNotPending(
            f"message {identity} was not edited: a consumer received it, or it was removed, at the same moment"
        ) from error
    return move.id


def _pending(context: QueueContext, identity: MessageId) -> HeldSlice:
    """Return the slice of a pending message, as if it was held until it is due.

    Raises MessageNotPending or InvalidMessage.
    """
    piece = find_slice(context, identity)
    if piece is None:
        raise MessageNotPending(f"message {identity} is not stored: it was acked, removed or moved")
    if why := _why_not_pending(piece):
        raise MessageNotPending(f"message {identity} {why}")
    held = held_stored(identity.shard, piece, PENDING)
    if held.damage is not None:
        raise InvalidMessage(f"message {identity} is damaged in the store: {held.damage}") from held.damage
    return read_properties(held)


def _why_not_pending(piece: StoredSlice) -> str:
    if piece.state is EntryState.PROCESSED:
        return "is processed: send another one, or replay it"
    if piece.blocks:
        return "blocks its group: redrive it first"
    if piece.state is EntryState.IN_FLIGHT:
        return "is in flight: its consumer can release it with another body"
    return ""
