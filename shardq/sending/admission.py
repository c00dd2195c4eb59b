"""What a queue takes: nothing while its sends are paused, and no message above its limit.

Every door that brings messages from outside asks here: sends, runs, copies, replays, and moves that somebody asked
for. Two do not, as the messages have no other place to go: dead-lettering, where a letter with its new headers may be
above the limit of the dead-letter queue, and, while sends are paused, ``release(body=)``.
"""

from __future__ import annotations

from shardq.context.queue_context import QueueContext
from shardq.errors import QueuePaused
from shardq.sending.outgoing import size_of, too_large
from shardq.storage.bundle_data import BundleData

__all__ = ["check_sizes", "check_takes_messages", "sizes"]


def check_takes_messages(context: QueueContext) -> None:
    """Raise QueuePaused when the queue takes no messages now."""
    if context.settings.sends_paused:
        raise QueuePaused(
            f"queue {context.name!r} takes no messages now: `shardq resume {context.name}` lets it"
        )


def check_sizes(context: QueueContext, messages: BundleData) -> None:
    """Raise MessageTooLarge when a message is above the queue's limit."""
    largest = max(sizes(messages))
    if largest > context.settings.max_message_bytes:
        raise too_large(largest, context.settings.max_message_bytes, context.name)


def sizes(messages: BundleData) -> list[int]:
    """The bytes of each message, as they count towards the limit."""
    if messages.headers is None:
        return [len(body) for body in messages.bodies]
    return [
        len(body) + size_of(headers) for body, headers in zip(messages.bodies, messages.headers, strict=True)
    ]
