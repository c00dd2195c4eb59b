"""Creating, finding and changing schedules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, get_args

import msgspec

from shardq.base.codec import BYTES, Codec, check_codec
from shardq.base.outgoing_message import DEFAULT_PRIORITY, HeaderValue, OutgoingMessage
from shardq.base.shard import check_queue_name
from shardq.base.texts import shown
from shardq.client.queue import Queue
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.core.sending.appending import too_large
from shardq.core.sending.planned_bundles import choose_shard
from shardq.core.sending.prepared import prepare_options, size_of
from shardq.core.settings import check_number, warn_of_differences
from shardq.errors import (
    Closed,
    InvalidMessage,
    InvalidSetting,
    OutcomeUnknown,
    QueueNotFound,
    ScheduleExists,
    ScheduleNotFound,
    StoreUnavailable,
)
from shardq.schedules.occurrences import FOLDER, Plans, Seen, check_id, id_of
from shardq.schedules.schedule import CatchUp, Overlap, Plan, Schedule, Timing, moment_of, timing_of, zone_of
from shardq.storage.writing import reporting_done

__all__ = ["Schedules", "forget"]

_LARGEST_BODY = 65_536  # bytes: a schedule is read as a whole
_MOST = 500  # schedules of one queue: its record names them

_TIMINGS = {"cron", "every", "at", "time_zone"}
_MESSAGE = {"body", "headers", "priority", "group", "ttl"}
_CHANGES = _TIMINGS | _MESSAGE | {"until", "count", "overlap", "catch_up"}


class Schedules:
    """The schedules of a store: ``client.schedules``. Safe for threads.

    A schedule sends a message to a queue at each of its occurrences. The consumers of that queue keep it going, all of
    them together: each occurrence takes place once, also when some die. Without a consumer of the queue nothing takes
    place; afterwards missed occurrences take place once, or not at all (``catch_up``).

    >>> client = shardq.connect(url)
    >>> reports = client.create_queue("reports")
    >>> nightly = client.schedules.create("nightly", queue="reports", cron="30 2 * * *", time_zone="Europe/Berlin")
    >>> nightly.queue, nightly.paused
    ('reports', False)
    >>> client.schedules.trigger("nightly").split(":")[0]
    'reports'
    >>> client.schedules.delete("nightly")
    """

    def __init__(self, contexts: QueueContexts) -> None:
        self._contexts, self._plans = contexts, Plans(contexts.store, contexts.retry)

    def create(
        self,
        id: str,  # noqa: A002 - its name everywhere
        *,
        queue: str,
        cron: str | None = None,
        every: float | None = None,
        at: datetime | None = None,
        time_zone: str = "UTC",
        until: datetime | None = None,
        count: int | None = None,
        overlap: Overlap = "allow",
        catch_up: CatchUp = "one",
        body: Any = b"",
        codec: Codec = BYTES,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = DEFAULT_PRIORITY,
        group: str | None = None,
        ttl: float | None = None,
        exist_ok: bool = False,
    ) -> Schedule:
        """Create a schedule. With ``exist_ok`` one that exists under the id is returned as it is.

        It is never changed: a warning is logged for each option of this call that it does not have.

        Give one of ``cron``, ``every`` and ``at``. ``cron`` is an expression of five fields, of six with the seconds
        in front, or ``@daily`` and the like, read in the ``time_zone``. ``every`` is seconds from 1, also until the
        first time. ``at`` is an aware ``datetime``. It ends with the last occurrence that is not after ``until``, or
        after ``count`` messages. With ``overlap="skip"`` an occurrence is left out while the message of the last one
        waits or is in flight. Of missed occurrences the last one takes place, or with ``catch_up="none"`` none that is
        more than a minute late. The other options are those of the messages, see :meth:`shardq.Producer.send`; a body
        has up to 64 KiB. The headers ``shardq-schedule`` and ``shardq-scheduled-for`` name schedule and occurrence.

        Consumers that wait notice it within 10 seconds. Raises InvalidName, InvalidSetting, InvalidMessage,
        QueueNotFound, or ScheduleExists, with nothing created.
        """
        name = check_id(id)
        plan = self._begun(
            Plan(
                queue=check_queue_name(queue),
                life=os.urandom(8).hex(),
                timing=timing_of(cron, every, at, time_zone),
                until=None if until is None else moment_of("until", until),
                count=count,
                overlap=overlap,
                catch_up=catch_up,
                body=_encoded(codec, body),
                headers=_packed(headers),
                priority=priority,
                group=group,
                ttl=ttl,
            )
        )
        context = self._contexts.of(queue)
        _check(context, name, plan)
        if len(context.live.jobs) >= _MOST and name not in context.live.jobs:
            raise InvalidSetting(
                f"queue {queue!r} has {_MOST} schedules: delete some, or send to another queue"
            )
        existing = self._add(context, name, plan)
        if existing is None:
            return plan.shown(id)
        if exist_ok:
            return _kept(existing.shown(id), plan.shown(id))
        raise ScheduleExists(
            f"schedule {id!r} exists already: change it with `alter`, or accept it with exist_ok"
        )

    def get(self, id: str) -> Schedule:  # noqa: A002
        """Return the present state of a schedule. Raises InvalidName or ScheduleNotFound."""
        return self._find(id).plan.shown(id)

    def list(self, queue: str | None = None) -> tuple[Schedule, ...]:
        """Return all schedules, or those of a queue, sorted by id. Raises InvalidName or QueueNotFound."""
        if queue is None:
            names = self._plans.names()
        else:
            names = tuple(name for name in self._contexts.of(queue).live.jobs if name.startswith(FOLDER))
        found = [seen for name in sorted(names) if (seen := self._plans.load(name)) is not None]
        chosen = [seen for seen in found if queue in (None, seen.plan.queue) and self._lives(seen)]
        return tuple(seen.plan.shown(id_of(seen.record.name)) for seen in chosen)

    def pause(self, id: str) -> Schedule:  # noqa: A002
        """Let nothing take place until :meth:`resume`. Raises ScheduleNotFound."""
        return self._change(id, lambda plan: msgspec.structs.replace(plan, paused=True))

    def resume(self, id: str) -> Schedule:  # noqa: A002
        """Continue with the first occurrence after now; those of the pause are left out. Raises ScheduleNotFound."""
        return self._change(id, self._resumed)

    def trigger(self, id: str) -> str:  # noqa: A002
        """Send the message of a schedule now, also while it is paused; returns the message's id.

        Nothing of the schedule changes: it is not an occurrence. Raises ScheduleNotFound, or the errors of a send.
        """
        plan = self._find(id).plan
        context = self._contexts.of(plan.queue)
        with Queue(context).producer() as producer:
            return producer.send(plan.message(id, context.store.now()))

    def alter(self, id: str, **changes: Any) -> Schedule:  # noqa: A002
        """Change the given options of :meth:`create`, but for the queue; returns the schedule.

        With a new ``cron``, ``every``, ``at`` or ``time_zone`` the next occurrence is the first of the new ones after
        now. ``count`` counts from the creation. Occurrences that were decided upon before take place. Raises
        InvalidSetting, InvalidMessage or ScheduleNotFound, with nothing changed.
        """
        codec = check_codec(changes.pop("codec", BYTES))
        for name in changes:
            if name not in _CHANGES:
                raise InvalidSetting(
                    f"{name!r} cannot be changed of a schedule: use one of {', '.join(sorted(_CHANGES))}"
                )
        return self._change(id, lambda plan: self._altered(plan, codec, changes, check_id(id)))

    def delete(self, id: str) -> None:  # noqa: A002
        """Delete a schedule. Messages that were sent stay. Raises ScheduleNotFound."""
        found = self._find(id)
        with suppress(QueueNotFound):
            self._contexts.of(found.plan.queue).live.assign(found.record.name, to_consumers=False)
        with reporting_done(lambda: f"schedule {id!r} is deleted, but its record may be left"):
            self._forget(found.record.name)

    # -- what is stored -----------------------------------------------------------------------------------------

    def _find(self, id: str) -> Seen:  # noqa: A002
        found = self._plans.load(check_id(id))
        if found is None or not self._lives(found):
            raise ScheduleNotFound(
                f"schedule {id!r} does not exist: `shardq schedule list` shows those that do"
            )
        return found

    def _add(self, context: QueueContext, name: str, plan: Plan) -> Plan | None:
        """Store a new schedule, and return None; or return the one that exists under the name."""
        while not self._is_added(context, name, plan):
            found = self._plans.load(name)
            if found is not None and self._lives(found):
                return found.plan
            if found is not None:
                self._plans.remove(found)  # of a queue that was deleted, or of a creation that did not end
        return None

    def _is_added(self, context: QueueContext, name: str, plan: Plan) -> bool:
        """Store a new schedule, then its name; False when there is one, or its record was removed meanwhile.

        In the end the record is replaced by an equal one. So a client that saw it without its name leaves it.
        """
        created = self._plans.create(name, plan)
        if created is None:
            return False
        context.live.assign(name)
        with reporting_done(lambda: "the schedule is created: repeat the call with exist_ok=True"):
            if self._plans.replace(created, plan) is not None:
                return True
            found = self._plans.load(name)
        return found is not None and found.plan.life == plan.life  # a consumer has advanced it

    def _lives(self, seen: Seen) -> bool:
        """Return whether the queue of the schedule is there and names it."""
        try:
            return seen.record.name in self._contexts.of(seen.plan.queue).live.jobs
        except QueueNotFound:
            return False

    def _forget(self, name: str) -> None:
        while (left := self._plans.load(name)) is not None and not (
            self._lives(left) or self._plans.remove(left)
        ):
            continue

    def _change(self, id: str, change: Callable[[Plan], Plan]) -> Schedule:  # noqa: A002
        """Change the stored schedule, also while others change it, and notify the consumers of its queue."""
        while True:
            seen = self._find(id)
            changed = change(seen.plan)
            if changed == seen.plan:
                return changed.shown(id)
            if self._plans.replace(seen, changed) is not None:
                with suppress(Closed, OutcomeUnknown, QueueNotFound, StoreUnavailable):
                    # It is a hint: they look for themselves once a minute.
                    self._contexts.of(seen.plan.queue).live.alter({})
                return changed.shown(id)

    def _resumed(self, plan: Plan) -> Plan:
        if not plan.paused:
            return plan
        return msgspec.structs.replace(plan, paused=False, next=plan.following(self._contexts.store.now()))

    def _altered(self, plan: Plan, codec: Codec, changes: Mapping[str, Any], name: str) -> Plan:
        context = self._contexts.of(plan.queue)
        values = {key: value for key, value in changes.items() if key not in _TIMINGS}
        if "body" in values:
            values["body"] = _encoded(codec, values["body"])
        if "headers" in values:
            values["headers"] = _packed(values["headers"])
        if values.get("until") is not None:
            values["until"] = moment_of("until", values["until"])
        changed = msgspec.structs.replace(plan, **values)
        if _TIMINGS & changes.keys():
            changed = msgspec.structs.replace(changed, timing=_timed(plan.timing, changes), next=None)
        if (_TIMINGS | {"until", "count"}) & changes.keys():
            changed = self._begun(changed)
        _check(context, name, changed)
        return changed

    def _begun(self, plan: Plan) -> Plan:
        _check_end(plan)
        return plan.begun(self._contexts.retry(self._contexts.store.now))


def forget(contexts: QueueContexts, name: str) -> None:
    """Remove the record of a schedule whose queue is deleted."""
    Schedules(contexts)._forget(name)  # noqa: SLF001 - of this file


def _kept(found: Schedule, wanted: Schedule) -> Schedule:
    """Return the existing schedule. Warns of options that differ."""
    kept, given = msgspec.structs.asdict(found), msgspec.structs.asdict(wanted)
    warn_of_differences(
        f"schedule {found.id!r}",
        kept,
        {name: given[name] for name in sorted(_CHANGES)},
        "`client.schedules.alter` changes it",
    )
    warn_of_differences(
        f"schedule {found.id!r}", kept, {"queue": wanted.queue}, "delete it to create it there"
    )
    return found


def _timed(timing: Timing, changes: Mapping[str, Any]) -> Timing:
    given = {name: changes.get(name) for name in ("cron", "every", "at")}
    if all(value is None for value in given.values()):
        zone = zone_of(changes["time_zone"], timing.cron) if "time_zone" in changes else timing.time_zone
        return msgspec.structs.replace(timing, time_zone=zone)
    kept = timing.time_zone if given["cron"] is not None else "UTC"
    return timing_of(given["cron"], given["every"], given["at"], changes.get("time_zone", kept))


def _check_end(plan: Plan) -> None:
    if plan.count is not None:
        check_number("count", plan.count, 1, 2**53, whole=True)
    for name, kind in (("overlap", Overlap), ("catch_up", CatchUp)):
        if getattr(plan, name) not in get_args(kind):
            raise InvalidSetting(
                f"{name}={shown(getattr(plan, name))}: give one of {', '.join(get_args(kind))}"
            )


def _check(context: QueueContext, name: str, plan: Plan) -> None:
    """Raise the errors of a send of the message, but for a queue that is paused or full now."""
    _check_end(plan)
    message: OutgoingMessage = plan.message(id_of(name), context.store.now())
    options = prepare_options(message, context.name)
    choose_shard(context, context.store.now(), 1, options.group)
    size = len(plan.body) + size_of(options.headers)
    if len(plan.body) > _LARGEST_BODY:
        raise InvalidMessage(
            f"body of {len(plan.body):,} bytes: a schedule has at most {_LARGEST_BODY:,}; store the content elsewhere "
            "and send a reference"
        )
    if size > context.settings.max_message_bytes:
        raise too_large(context, size)


def _encoded(codec: Codec, body: Any) -> bytes:
    return bytes(check_codec(codec).encode(body))


def _packed(headers: Mapping[str, HeaderValue] | None) -> bytes:
    checked = prepare_options(OutgoingMessage(body=b"", headers=headers), "").headers
    return msgspec.msgpack.encode(checked or {})
