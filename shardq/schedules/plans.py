"""The store of schedules: each is in a separate record, which is changed only if it is as it was read.

A record is that of a queue of shardq's own which never holds a message. Every store replaces such a record if it is as
it was read, and keeps lives of one name apart. The id of a schedule is part of its name.
"""

from __future__ import annotations

from functools import partial

import msgspec

from shardq.base.shard import INTERNAL, check_queue_name
from shardq.core.context.retry import Retry
from shardq.errors import InvalidName
from shardq.schedules.schedule import Plan
from shardq.storage.requests import QueueRecord
from shardq.storage.store import Store
from shardq.storage.writing import telling_done

__all__ = ["FOLDER", "Plans", "Seen", "check_id", "id_of"]

FOLDER = f"{INTERNAL}schedules/"
_LONGEST_ID = 80  # names of queues have up to 100 characters on every store


class _Stored(msgspec.Struct, frozen=True):
    schedule: Plan


class Seen(msgspec.Struct, frozen=True):
    """A schedule, and the record in which it was seen."""

    record: QueueRecord
    plan: Plan


_decoder = msgspec.json.Decoder(_Stored)


class Plans:
    """The stored schedules of one store."""

    def __init__(self, store: Store, retry: Retry) -> None:
        self._store, self._retry = store, retry

    def load(self, name: str) -> Seen | None:
        """Load a schedule by the name of its record; None: there is none."""
        record = self._retry(self._store.load_queue, name)
        return None if record is None else Seen(record, _decoder.decode(record.settings).schedule)

    def create(self, name: str, plan: Plan) -> Seen | None:
        """Store a new schedule; None when there is one of the name."""
        record = QueueRecord.new(name, _encoded(plan))
        created = self._retry.surely(partial(self._stands, record), self._store.create_queue, record)
        return Seen(record, plan) if created else None

    def replace(self, seen: Seen, plan: Plan) -> Seen | None:
        """Store a schedule in place of the one that was read; None when the stored one is neither of them."""
        record = QueueRecord(seen.record.name, _encoded(plan), seen.record.version + 1)
        replaced = self._retry.surely(partial(self._stands, record), self._store.update_queue, record)
        return Seen(record, plan) if replaced else None

    def remove(self, seen: Seen) -> bool:
        """Remove a schedule, if it is as it was seen."""
        removed = self._retry.ask(self._store.drop_queue, seen.record.name, seen.record)
        if removed.value or not removed.after_unknown:
            return removed.value
        with telling_done(lambda: "the schedule may be removed: repeat the call"):
            return self._retry(self._store.load_queue, seen.record.name) is None

    def _stands(self, record: QueueRecord) -> bool:
        return self._retry(self._store.load_queue, record.name) == record

    def names(self) -> tuple[str, ...]:
        """Return the names of all records."""
        return self._retry(self._store.list_queues, FOLDER)


def check_id(schedule: object) -> str:
    """Return the name of the record of a schedule. Raises InvalidName."""
    try:
        name = check_queue_name(schedule)
    except InvalidName as error:
        raise InvalidName(str(error).replace("queue name", "schedule id", 1)) from None
    if len(name) > _LONGEST_ID or name.startswith(INTERNAL):
        raise InvalidName(
            f"schedule id {name[:20]!r}...: use at most {_LONGEST_ID} characters, and not {INTERNAL!r} in front"
        )
    return FOLDER + name


def id_of(name: str) -> str:
    """Return the id of the schedule whose record has this name."""
    return name.removeprefix(FOLDER)


def _encoded(plan: Plan) -> bytes:
    return msgspec.json.encode(_Stored(plan))
