"""Since when a queue that expires was found unused: a mark beside the settings in its record.

Whoever stores settings stores them without the mark. So every change of a queue's settings is a use of it, and the mark
is a part of what a sweep has to find unchanged when it deletes the queue.
"""

from __future__ import annotations

import msgspec

from shardq.storage.requests import QueueRecord

__all__ = ["marked", "unused_since"]


class _Mark(msgspec.Struct, frozen=True):
    unused_since: int | None = None


_decoder = msgspec.json.Decoder(_Mark)


def unused_since(record: QueueRecord) -> int | None:
    """Since when the queue was found unused, in microseconds by the store's clock; None if it is in use."""
    return _decoder.decode(record.settings).unused_since


def marked(record: QueueRecord, moment: int) -> QueueRecord:
    """The next version of the record, with the mark."""
    settings = msgspec.json.decode(record.settings) | {"unused_since": moment}
    return QueueRecord(record.name, msgspec.json.encode(settings), record.version + 1)
