"""What stands beside the settings in a queue's record: the duties of its consumers, and since when it is unused.

A duty is the name of a schedule's record, or says which topic is to be relayed. A queue that has none pays nothing for
that: its consumers read the record anyway. Nothing here knows what a duty is.

Whoever stores settings stores them without the mark. So every change of a queue's settings is a use of it, and the mark
is a part of what a sweep has to find unchanged when it deletes the queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.storage.requests import QueueRecord

__all__ = ["duties_of", "marked", "unused_since", "with_duties"]

_FIELD = "duties"


class _Duties(msgspec.Struct, frozen=True):
    duties: tuple[str, ...] = ()


_duties_of = msgspec.json.Decoder(_Duties)


def duties_of(record: QueueRecord) -> tuple[str, ...]:
    """The names of what the queue's consumers look after."""
    return _duties_of.decode(record.settings).duties if b'"duties"' in record.settings else ()


def with_duties(settings: bytes, duties: Sequence[str]) -> bytes:
    """Encoded settings, with duties beside them if there are any."""
    if not duties:
        return settings
    return msgspec.json.encode(msgspec.json.decode(settings) | {_FIELD: list(duties)})


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
