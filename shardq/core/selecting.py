"""Selecting stored messages by their properties: their holder, headers, group, time, the reason of a dead letter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from datetime import datetime

import msgspec

from shardq.base.callables import check_runs
from shardq.base.clock import from_datetime, is_aware
from shardq.base.codec import Codec
from shardq.base.outgoing_message import Headers, HeaderValue, group_of
from shardq.base.receipt import MessageId
from shardq.base.texts import kind_of, shown
from shardq.core.browsing import READ_AHEAD_BYTES, Holders, messages_in, remove, slices
from shardq.core.context.decision_log import why_blocked
from shardq.core.context.identity import holder_id
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import HeldSlice
from shardq.core.message import StoredMessage
from shardq.core.settling.dead_letters import REASON, group_before
from shardq.errors import InvalidSetting
from shardq.storage.requests import Bundle, Peek, StoredSlice
from shardq.storage.writing import reporting_done

__all__ = ["MessageFilter", "check_filter", "remove_selected", "select", "takes_blocked", "takes_dead_letter"]

_PAGE = 100
"""Messages of the first page of each shard: pages grow while their bodies are small."""


class MessageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages of a queue are meant: those that meet every condition that is given. Without any, all.

    ``ids``
        those of these ids, a set
    ``in_flight``
        those that a consumer holds
    ``blocked``
        those that were given up and hold up their groups
    ``owner``
        those that the consumer of this name or id holds
    ``headers``
        those that have all of these headers, with these values; a text also means a number or a bool that is written so
    ``group``
        those of this group; of dead letters, those that were in it
    ``reason``
        those whose reason has this text in it: dead letters, and messages that block their groups
    ``sent_since``, ``sent_until``
        those that were sent at or after a moment, and before one. Moves do not change when a message was sent.
    ``due_since``, ``due_until``
        those that were or are first due at or after a moment, and before one. For a dead letter that is when it became
        one.

    Moments are aware datetimes. Raises InvalidSetting.

    >>> from datetime import UTC, datetime, timedelta
    >>> old = MessageFilter(headers={"tenant": "acme"}, sent_until=datetime.now(UTC) - timedelta(days=7))
    """

    ids: Set[str] | None = None
    in_flight: bool = False
    blocked: bool = False
    owner: str | None = None
    headers: Mapping[str, HeaderValue] | None = None
    group: str | None = None
    reason: str | None = None
    sent_since: datetime | None = None
    sent_until: datetime | None = None
    due_since: datetime | None = None
    due_until: datetime | None = None

    def __post_init__(self) -> None:
        if self.ids is not None and not isinstance(self.ids, Set):
            raise InvalidSetting(f"ids={shown(self.ids)} is {kind_of(self.ids)}: give a set of ids")
        for name in ("owner", "group", "reason"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InvalidSetting(f"{name}={shown(value)} is {kind_of(value)}: give a str")
        for name in ("sent_since", "sent_until", "due_since", "due_until"):
            moment = getattr(self, name)
            if moment is not None and not is_aware(moment):
                raise InvalidSetting(
                    f"{name}={shown(moment)}: give an aware datetime, such as datetime.now(UTC) - timedelta(minutes=10)"
                )
        if self.headers is not None and not isinstance(self.headers, Mapping):
            raise InvalidSetting(
                f"headers={shown(self.headers)} is {kind_of(self.headers)}: give values by names, such as "
                "{'tenant': 'acme'}"
            )

    @property
    def is_of_held(self) -> bool:
        """True when only messages in flight are meant."""
        return self.in_flight or self.owner is not None


def may_take(wanted: MessageFilter, piece: StoredSlice) -> bool:
    """Return False if no message of a slice is meant, by what they have in common."""
    is_held = piece.token is not None and not piece.blocks
    is_meant = (is_held or not wanted.is_of_held) and (piece.blocks or not wanted.blocked)
    return is_meant and _is_of_time(wanted, piece.bundle)


def takes(wanted: MessageFilter, message: StoredMessage, piece: StoredSlice) -> bool:
    """Return whether a message is meant, of a slice that may have some."""
    if wanted.owner is not None and wanted.owner not in (message.owner, holder_id(piece.token or b"")):
        return False
    group = message.group or group_of(group_before(message.headers))
    reason = message.blocked or str(message.headers.get(REASON, ""))
    return _takes(wanted, message.id, message.headers, group, reason)


def takes_dead_letter(wanted: MessageFilter, held: HeldSlice, position: int) -> bool:
    """Return whether a dead letter is meant that was claimed to be redriven."""
    headers = _headers_of(held, position)
    is_meant = not wanted.blocked and _is_of_time(wanted, held.bundle)
    group, reason = group_of(group_before(headers)), str(headers.get(REASON, ""))
    return is_meant and _takes(wanted, held.message_id(position), headers, group, reason)


def takes_blocked(wanted: MessageFilter, context: QueueContext, held: HeldSlice, position: int) -> bool:
    """Return whether a message is meant that blocks its group."""
    reason = "" if wanted.reason is None else why_blocked(context, str(held.message_id(position)))
    headers, group = _headers_of(held, position), group_of(held.bundle.group)
    identity = held.message_id(position)
    return _is_of_time(wanted, held.bundle) and _takes(wanted, identity, headers, group, reason)


def _headers_of(held: HeldSlice, position: int) -> Headers:
    return (held.messages.headers[position] if held.messages.headers else None) or {}


def _is_of_time(wanted: MessageFilter, bundle: Bundle) -> bool:
    return _is_within(bundle.enqueued_at, wanted.sent_since, wanted.sent_until) and _is_within(
        bundle.due, wanted.due_since, wanted.due_until
    )


def _takes(
    wanted: MessageFilter, identity: str | MessageId, headers: Headers, group: str | None, reason: str
) -> bool:
    return (
        (wanted.ids is None or str(identity) in wanted.ids)
        and all(
            name in headers and _is(headers[name], value) for name, value in (wanted.headers or {}).items()
        )
        and (wanted.group is None or group == wanted.group)
        and (wanted.reason is None or wanted.reason in reason)
    )


def select(context: QueueContext, codec: Codec, wanted: MessageFilter) -> Iterator[StoredMessage]:
    """Return the messages that are meant, shard by shard, each shard in delivery order. See `Queue.select`."""
    holders = Holders(context)
    for shard in context.retry(context.store.shards, context.name):
        if wanted.blocked and not shard.is_grouped:
            continue
        for piece in slices(
            context, Peek(shard, _PAGE, held=wanted.blocked or wanted.is_of_held), READ_AHEAD_BYTES
        ):
            if may_take(wanted, piece):
                for message in messages_in(shard, piece, codec):
                    found = holders.shown(message, piece)
                    if takes(wanted, found, piece):
                        yield found


def remove_selected(
    context: QueueContext, ids: Iterable[str], progress: Callable[[int], None] | None = None
) -> int:
    """Remove messages one by one; returns how many were removed. ``progress`` is called with that after each."""
    removed = 0
    if progress is not None:
        check_runs("progress", progress)
    with reporting_done(lambda: f"{removed} messages are removed: repeat the call" if removed else ""):
        for each in ids:
            removed += remove(context, MessageId.parse(each, context.name))
            if progress is not None:
                progress(removed)
    return removed


def check_filter(where: object, *, held: bool = True) -> MessageFilter:
    """Return the filter, or raise InvalidSetting; unless messages may be ``held``, also for one of those in flight."""
    if not isinstance(where, MessageFilter):
        raise InvalidSetting(f"where={shown(where)} is {kind_of(where)}: give a shardq.MessageFilter")
    if where.is_of_held and not held:
        raise InvalidSetting(
            "where has in_flight or owner, but dead letters are not in flight: leave these out"
        )
    return where


def _is(stored: HeaderValue, wanted: HeaderValue) -> bool:
    if isinstance(wanted, str) and isinstance(stored, int | float):
        return wanted == (str(stored).lower() if isinstance(stored, bool) else str(stored))
    return type(stored) is type(wanted) and stored == wanted


def _is_within(moment: int, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or moment >= from_datetime(since)) and (
        until is None or moment < from_datetime(until)
    )
