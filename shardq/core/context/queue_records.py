"""The entries beside the settings in a queue's record: its background jobs, and since when it is unused.

The consumers of the queue run its background jobs. A job is the name of a schedule's record, or names a topic to be
relayed. A queue without jobs pays nothing for that: its consumers read the record anyway. Nothing here knows what a
job does.

A queue that is found unused is marked with the moment. Settings are always stored without the mark. So every change of
a queue's settings is a use of it. A sweep deletes the queue only if it finds its mark unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.storage.requests import QueueRecord

__all__ = ["jobs_of", "marked", "unused_since", "with_jobs"]

_FIELD = "duties"  # the name of jobs in stored records


class _BackgroundJobs(msgspec.Struct, frozen=True):
    jobs: tuple[str, ...] = msgspec.field(default=(), name=_FIELD)


_background_jobs = msgspec.json.Decoder(_BackgroundJobs)


def jobs_of(record: QueueRecord) -> tuple[str, ...]:
    """Return the names of the jobs that the queue's consumers run."""
    return _background_jobs.decode(record.settings).jobs if f'"{_FIELD}"'.encode() in record.settings else ()


def with_jobs(settings: bytes, jobs: Sequence[str]) -> bytes:
    """Add background jobs, if there are any, to encoded settings."""
    if not jobs:
        return settings
    return msgspec.json.encode(msgspec.json.decode(settings) | {_FIELD: list(jobs)})


class _Mark(msgspec.Struct, frozen=True):
    unused_since: int | None = None


_decoder = msgspec.json.Decoder(_Mark)


def unused_since(record: QueueRecord) -> int | None:
    """Return since when the queue is unused, in microseconds by the store's clock; None if it is in use."""
    return _decoder.decode(record.settings).unused_since


def marked(record: QueueRecord, moment: int) -> QueueRecord:
    """Make the next version of the record, with the mark."""
    settings = msgspec.json.decode(record.settings) | {"unused_since": moment}
    return QueueRecord(record.name, msgspec.json.encode(settings), record.version + 1)
