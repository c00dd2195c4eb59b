"""What the consumers of a queue look after beside its messages: names, in the queue's record beside its settings.

A duty is the name of a schedule's record, or says which topic is to be relayed. A queue that has none pays nothing for
that: its consumers read the record anyway. Nothing here knows what a duty is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.storage.requests import QueueRecord

__all__ = ["duties_of", "with_duties"]

_FIELD = "duties"


class _Duties(msgspec.Struct, frozen=True):
    duties: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(_Duties)


def duties_of(record: QueueRecord) -> tuple[str, ...]:
    """The names of what the queue's consumers look after."""
    return _decoder.decode(record.settings).duties if b'"duties"' in record.settings else ()


def with_duties(settings: bytes, duties: Sequence[str]) -> bytes:
    """Encoded settings, with duties beside them if there are any."""
    if not duties:
        return settings
    return msgspec.json.encode(msgspec.json.decode(settings) | {_FIELD: list(duties)})
