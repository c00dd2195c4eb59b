"""The ways into a queue, and the one function that appends bundles to a store.

An append can be repeated for a limited time. A store ignores a bundle that it holds, and remembers a finished bundle
for 15 minutes. Later it is unknown whether a bundle that may have been stored was worked already, so :func:`append`
refuses to repeat it.

The same time bounds the first append of a message with a large body, from when its id was made. The body is there for
that time, though its sender stood still.

A bundle with a dedupe key can be appended however old it is. A message is handed out only after its key is confirmed:
a key that is not confirmed proves that the message was not received. The limit counts from when the key was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from shardq.base.codec import BYTES, Codec
from shardq.base.large_body import LargeBody
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.context.event_writer import Entry
from shardq.core.context.queue_context import QueueContext
from shardq.core.large.layout import bodies_queue, owner_entry, owner_in, shard_of
from shardq.core.sending.bounds import within_bounds
from shardq.core.sending.planned_bundles import PlannedBundle
from shardq.core.sending.prepared import Send, size_of
from shardq.errors import (
    BodyNotFound,
    MessageTooLarge,
    OutcomeUnknown,
    QueuePaused,
    RepeatTooLate,
    StoreUnavailable,
)
from shardq.storage.bundles import BundleData, encode_bundle, made_at
from shardq.storage.requests import Append, Bundle

__all__ = [
    "BODY",
    "COPY",
    "DEAD_LETTER",
    "FORWARD",
    "LOG",
    "PERMIT",
    "REDRIVE",
    "REPLACE",
    "REPLAY",
    "RUN",
    "SEND",
    "UNBLOCK",
    "AppendPolicy",
    "admit",
    "admitted",
    "append",
    "check_age",
    "moved_bundle",
    "obeying_bounds",
    "prepare",
    "too_large",
]

REPEATABLE_MINUTES = 14
"""Of an append that was not answered; a minute less than stores remember what was finished."""

_MINUTE = 60_000_000


class AppendPolicy(msgspec.Struct, frozen=True):
    """A way into a queue, and what it obeys (docs/design/sending.md). Hooks see sends only: see ``plan_sends``."""

    obeys_pause: bool = True  # it lets in nothing while the queue's sends are paused
    obeys_size: bool = True  # it lets in no message above the queue's max_message_bytes
    obeys_bounds: bool = True  # it lets in no more than the queue's max_messages and max_bytes allow
    counts_sent: bool = True  # in the client's counters; moves are counted as what they are
    fresh_ids: bool = False  # a bundle's id is as old as its first send
    keeps_expiry: bool = True  # what is moved through it expires when it would have where it was


SEND = AppendPolicy(fresh_ids=True)
RUN = COPY = REPLAY = AppendPolicy()
FORWARD = REDRIVE = AppendPolicy(counts_sent=False)
REPLACE = AppendPolicy(obeys_pause=False, obeys_bounds=False, counts_sent=False)
PERMIT = LOG = BODY = AppendPolicy(obeys_pause=False, obeys_size=False, obeys_bounds=False, counts_sent=False)
DEAD_LETTER = UNBLOCK = AppendPolicy(
    obeys_pause=False, obeys_size=False, obeys_bounds=False, counts_sent=False, keeps_expiry=False
)


def moved_bundle(
    policy: AppendPolicy,
    shard: Shard,
    messages: BundleData,
    *,
    source: Bundle,
    identity: bytes,
    due: int,
    key: str | None = None,
) -> PlannedBundle:
    """Plan messages that are moved under a policy. The fields of ``source`` stay, but for what the policy ends."""
    return PlannedBundle(
        identity,
        source.priority,
        due,
        source.enqueued_at,
        len(messages.bodies),
        encode_bundle(messages),
        source.expires_at if policy.keeps_expiry else None,
        source.group,
        shard=shard,
        key=key,
        large=messages.large,
    )


def admit(context: QueueContext, policy: AppendPolicy, largest: int = 0) -> None:
    """Raise QueuePaused or MessageTooLarge if the policy does not let in messages of up to ``largest`` bytes now."""
    settings = context.settings
    if settings.expires is not None:
        context.live.use()
    if policy.obeys_pause and settings.sends_paused:
        name = context.name
        raise QueuePaused(
            f"queue {name!r} accepts no messages: its sends are paused; `shardq resume {name}` ends that"
        )
    if policy.obeys_size and largest > settings.max_message_bytes:
        raise too_large(context, largest)


def prepare(context: QueueContext, item: Any, body: Any, options: Send, codec: Codec) -> Send:
    """Check a body alone, before it joins others; raises InvalidMessage, MessageTooLarge or QueuePaused."""
    large = body if isinstance(body, LargeBody) else None
    is_plain = type(body) is bytes and codec is BYTES
    encoded = body if is_plain else b"" if large is not None else codec.encode(body)
    size = len(encoded) if options.headers is None else len(encoded) + size_of(options.headers)
    live = context.live
    if live.timer() > live.read_again_at:
        live.refresh()
    if size > live.unchecked_bytes:
        admit(context, SEND, size)
    return msgspec.structs.replace(options, items=(item,), bodies=(encoded,), large=large)


def too_large(context: QueueContext, size: int) -> MessageTooLarge:
    """Make the error for a message of this number of bytes."""
    return MessageTooLarge(
        f"message of {size:,} bytes: queue {context.name!r} takes at most "
        f"{context.settings.max_message_bytes:,} (max_message_bytes); "
        "send it with `producer.send_file` or `send_stream`, which store it in parts, or raise the limit"
    )


def admitted(context: QueueContext, policy: AppendPolicy, bundles: Sequence[PlannedBundle]) -> Append:
    """Make the request that stores bundles of one shard. Raises QueuePaused.

    Owners of large bodies are entered first, so that the bodies do not seem to be of no message.
    """
    live = context.live
    if live.timer() > live.read_again_at:
        live.refresh()
    if live.unchecked_bytes < 0:
        admit(context, policy)
    is_fresh = policy.fresh_ids
    for planned in bundles:
        if planned.large is not None:
            _enter_owner(context, planned, planned.large)
        is_fresh = is_fresh and not (planned.again or planned.key or planned.unique_key)
    return Append(bundles[0].shard, tuple(bundles), is_fresh)


def obeying_bounds(
    context: QueueContext, policy: AppendPolicy, bundles: Sequence[PlannedBundle]
) -> AbstractContextManager[None]:
    """Make room for bundles that are stored within the block. Raises QueueFull.

    No room is made for what may be stored already, which could drop that very message.
    """
    new = [planned for planned in bundles if not planned.again]
    if new and policy.obeys_bounds and context.live.is_bounded:
        return within_bounds(context, new)
    return nullcontext()


def _enter_owner(context: QueueContext, planned: PlannedBundle, body: LargeBody) -> None:
    bodies = bodies_queue(context)
    entry = owner_entry(body, str(planned.message_id(0)), bodies.store.now())
    append(bodies, BODY, [PlannedBundle.of(shard_of(body.id), entry)])
    stored = bodies.retry(bodies.store.find, shard_of(body.id), entry.id, 0)
    if stored is not None and owner_in(stored) != planned.message_id(0):  # by chance the number is taken
        raise StoreUnavailable(
            f"message {planned.message_id(0)} cannot be entered as an owner of its large body: send it again, as a new "
            "message"
        )


def append(
    context: QueueContext, policy: AppendPolicy, bundles: Sequence[PlannedBundle], *, keys_read_at: int = 0
) -> None:
    """Store bundles of one shard. ``keys_read_at`` is when the keys of those that have one were found unconfirmed.

    Repeated for the client's ``retry_seconds``. The caller has checked the sizes. Raises QueuePaused, QueueFull or
    RepeatTooLate, OutcomeUnknown when some attempt may have stored them, or what else keeps the store from it.
    """
    began = 0 if policy.fresh_ids else context.store.now()
    attempts = _Attempts(context, admitted(context, policy, bundles), bundles, keys_read_at, began)
    if context.live.is_bounded:
        with obeying_bounds(context, policy, bundles):
            context.retry(attempts)
    else:
        context.retry(attempts)
    if policy.counts_sent:
        sent = 0
        for planned in bundles:
            sent += len(planned.places) or planned.count
        context.counters.add(sent=sent)
        if context.live.keeps_events:
            context.events.record(context, map(_sent, bundles))


def _sent(planned: PlannedBundle) -> Entry:
    delay = max(0, planned.due - planned.enqueued_at) or None
    return Entry("sent", str(planned.message_id(0)), planned.count, delay=delay)


def check_age(context: QueueContext, shard: Shard, bundle_id: bytes, since: int) -> None:
    """Raise RepeatTooLate if a bundle may be stored since a moment that is too long ago to append it again."""
    minutes = (context.store.now() - since) // _MINUTE
    if minutes >= REPEATABLE_MINUTES:
        raise RepeatTooLate(
            f"message {MessageId(shard, bundle_id, 0)} was sent {minutes} minutes ago, and may have been worked since: "
            f"a send can be repeated for {REPEATABLE_MINUTES} minutes; see with `queue.get(id)` whether it waits, "
            "and send it without its id if its work was not done"
        )


def _check_body(context: QueueContext, since: int) -> None:
    minutes = (context.store.now() - since) // _MINUTE
    if minutes >= REPEATABLE_MINUTES:
        raise BodyNotFound(
            f"a message for queue {context.name!r} was held up for {minutes} minutes after its large body was stored, "
            "which may be removed meanwhile: send it again"
        )


def _check_keys(context: QueueContext, read_at: int) -> None:
    minutes = (context.store.now() - read_at) // _MINUTE
    if minutes >= REPEATABLE_MINUTES:
        raise RepeatTooLate(
            f"messages for queue {context.name!r} were held up for {minutes} minutes after their keys were read, and "
            "may have been stored by others meanwhile: do it again, which reads the keys anew"
        )


class _Attempts(msgspec.Struct):
    """Attempts at one append; each looks first whether it is too late."""

    context: QueueContext
    request: Append
    bundles: Sequence[PlannedBundle]
    keys_read_at: int
    began: int
    doubtful: bool = False  # an attempt was not answered

    def __call__(self) -> None:
        has_keys = False
        for planned in self.bundles:
            if planned.key is not None:
                has_keys = True
            elif self.doubtful or planned.again:
                check_age(self.context, planned.shard, planned.id, self._since(planned))
            if planned.large is not None and planned.key is None:
                _check_body(self.context, self._since(planned))
        if has_keys:
            _check_keys(self.context, self.keys_read_at)
        try:
            self.context.store.append(self.request)
        except OutcomeUnknown:
            self.doubtful, self.request = True, msgspec.structs.replace(self.request, fresh=False)
            raise

    def _since(self, planned: PlannedBundle) -> int:
        return max(made_at(planned.id), self.began)
