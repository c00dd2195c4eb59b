"""Keeping a schedule going: due occurrences are decided in its record, and then sent.

Any number of consumers do this at the same time. The consumer that replaces the record first decides that an
occurrence takes place, and in the same step when the next one is. Then its message is sent, once under the
occurrence's key, and that is noted. A consumer that finds an occurrence decided upon and not noted as sent sends it
again, under the same key. So a crash between any two steps neither loses nor doubles an occurrence.

Each schedule is in a separate record: that of a queue of shardq's own which never holds a message. Every store replaces
such a record if it is as it was read, and keeps lives of one name apart. The id of a schedule is part of its name.
"""

from __future__ import annotations

from functools import partial

import msgspec

from shardq.base.log import Log
from shardq.base.shard import INTERNAL, check_queue_name
from shardq.client.queue import Queue
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Retry
from shardq.core.sending.storing import send_once
from shardq.errors import InvalidName
from shardq.schedules.schedule import Plan
from shardq.storage.requests import EntryState, QueueRecord
from shardq.storage.store import Store
from shardq.storage.writing import reporting_done

__all__ = ["FOLDER", "Plans", "Seen", "check_id", "id_of", "send_due_occurrence"]

_log = Log(__name__)

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
        created = self._retry.verified(partial(self._is_stored, record), self._store.create_queue, record)
        return Seen(record, plan) if created else None

    def replace(self, seen: Seen, plan: Plan) -> Seen | None:
        """Store a schedule in place of the one that was read; None when the stored one is neither of them."""
        record = QueueRecord(seen.record.name, _encoded(plan), seen.record.version + 1)
        replaced = self._retry.verified(partial(self._is_stored, record), self._store.update_queue, record)
        return Seen(record, plan) if replaced else None

    def remove(self, seen: Seen) -> bool:
        """Remove a schedule, if it is as it was seen."""
        removed = self._retry.ask(self._store.drop_queue, seen.record.name, seen.record)
        if removed.value or not removed.after_unknown:
            return removed.value
        with reporting_done(lambda: "the schedule may be removed: repeat the call"):
            return self._retry(self._store.load_queue, seen.record.name) is None

    def _is_stored(self, record: QueueRecord) -> bool:
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


_FAR = 2**62  # microseconds
_PATIENCE = 2_000_000  # for which who has decided upon an occurrence is given time to send it


def send_due_occurrence(context: QueueContext, name: str) -> int:
    """Send the due occurrence of a schedule of the queue. Returns when it has something to do again, in microseconds.

    One occurrence at most is sent, so that a schedule faster than its store does not keep its consumers from receiving.
    """
    plans, own, done = Plans(context.store, context.retry), False, False
    seen = plans.load(name)
    while seen is not None and seen.plan.queue == context.name:
        plan, now = seen.plan, context.store.now()
        if plan.pending is not None:
            if not own and plan.decided <= now < plan.decided + _PATIENCE:
                return plan.decided + _PATIENCE
            changed = _sent(context, name, plan)
        elif plan.paused or context.settings.sends_paused:
            return _FAR
        elif plan.next is None:
            changed = plan.reopened(now)
            if changed == plan:
                return _FAR
        elif plan.next > now:
            changed = plan.brought_near(now)
            if changed == plan:
                return plan.next
        elif done:
            return now
        else:
            changed = plan.advanced(now, waits=_waits(context, plan))
        replaced = plans.replace(seen, changed)
        own = replaced is not None
        done = done or changed.pending is None
        seen = replaced or _again(plans, name, seen)
    return _FAR


def _again(plans: Plans, name: str, before: Seen) -> Seen | None:
    _log.debug("schedule %s was advanced by another consumer at version %d", name, before.record.version)
    return plans.load(name)


def _sent(context: QueueContext, name: str, plan: Plan) -> Plan:
    """Send the message of the pending occurrence, unless another call has done so, and return the schedule after it."""
    assert plan.pending is not None
    message = plan.message(id_of(name), plan.pending)
    identity = send_once(context, message, f"{plan.life}:{plan.pending}")
    return msgspec.structs.replace(plan, pending=None, last_message=identity)


def _waits(context: QueueContext, plan: Plan) -> bool:
    """Return whether the due occurrence is to be skipped: the message of the last one is not finished."""
    if plan.overlap == "allow" or plan.last_message is None:
        return False
    found = Queue(context).get(plan.last_message)
    return found is not None and found.state is not EntryState.PROCESSED
