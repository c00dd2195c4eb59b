"""Sending a message once, whoever else sends it under the same key, and however often."""

from __future__ import annotations

import msgspec

from shardq.codec import BYTES
from shardq.context.queue_context import QueueContext
from shardq.outgoing_message import OutgoingMessage
from shardq.sending.planned_bundles import ONCE
from shardq.sending.prepared import prepare_options
from shardq.sending.storing import plan_sends, prepare, store_sends, tell_stored

__all__ = ["send_once"]


def send_once(context: QueueContext, message: OutgoingMessage, key: str) -> str:
    """Store a message of bytes unless one was sent under the key within 7 days; returns the id of that or of this one.

    For what shardq sends by itself: users have dedupe keys, for the time that the queue says. Raises what sends raise.
    """
    options = msgspec.structs.replace(prepare_options(message, context.name), dedupe_key=ONCE + key)
    bundles = plan_sends(context, [prepare(context, message, message.body, options, BYTES)])
    written = store_sends(context, bundles)
    if written.error is not None:
        raise written.error
    tell_stored(context, bundles, written)
    (identity,) = written.stored
    return identity
