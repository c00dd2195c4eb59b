"""A schedule, as users see it and as it is stored, and its occurrences.

They are given by a cron expression in a time zone, at an interval in seconds, or once. Daylight-saving time is as in
Debian's cron. An occurrence at an hour that is skipped is right after the change, and one at an hour that comes twice
is at the first of them. Expressions whose minute or hour begins with ``*`` count real time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from shardq.base.clock import from_datetime, is_aware, microseconds, seconds, to_datetime
from shardq.base.outgoing_message import DEFAULT_PRIORITY, Headers, OutgoingMessage
from shardq.base.texts import kind_of, shown
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting

__all__ = [
    "MOMENT_HEADER",
    "CatchUp",
    "Overlap",
    "Plan",
    "Schedule",
    "Timing",
    "moment_of",
    "timing_of",
    "zone_of",
]

_LONGEST_PERIOD = 10 * 366 * 86_400.0  # seconds
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
_FIRST_LOOK_BACK = 60_000_000  # microseconds
_NAMED = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip

_FIELDS = (
    ("second", 60), ("minute", 60), ("hour", 24), ("day of month", 31), ("month", 12), ("day of week", 7),
)  # fmt: skip

Overlap = Literal["allow", "skip"]
"""Whether an occurrence takes place while the message of the last one still waits or is in flight."""

CatchUp = Literal["one", "none"]
"""The rule for occurrences that were missed: the last of them takes place late, or none does."""

ID_HEADER, MOMENT_HEADER = "shardq-schedule", "shardq-scheduled-for"
GRACE = 60_000_000
"""Microseconds. Later than that an occurrence was missed."""

_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(dict).decode


class Timing(msgspec.Struct, frozen=True):
    """Exactly one of the first three is set. Moments and periods are in microseconds."""

    cron: str | None = None
    every: int | None = None
    at: int | None = None
    time_zone: str = "UTC"

    def first(self, now: int) -> int | None:
        """Return the first occurrence of a schedule that begins now."""
        if self.every is not None:
            return now + self.every
        return self.at if self.at is not None else self.after(now)

    def after(self, moment: int) -> int | None:
        """Return the first occurrence after a moment, which is itself an occurrence if they come at an interval."""
        if self.every is not None:
            return moment + self.every
        if self.cron is None:
            return None
        start = to_datetime(moment).astimezone(ZoneInfo(self.time_zone))
        for found in CronSim(_NAMED.get(self.cron, self.cron), start):
            if found.year > _LAST_YEAR:
                break
            if (occurrence := from_datetime(found)) > moment:  # not the first of an hour that comes twice
                return occurrence
        return None

    def latest(self, occurrence: int, now: int) -> int:
        """Return the last occurrence until now, given an earlier one. Takes no longer if there were a million."""
        if self.every is not None:
            return occurrence + (now - occurrence) // self.every * self.every
        back = _FIRST_LOOK_BACK
        while now - back > occurrence:
            found = self.after(now - back)
            if found is not None and found <= now:
                return self._last(found, now)
            back *= 4
        return self._last(occurrence, now)

    def _last(self, occurrence: int, now: int) -> int:
        while (following := self.after(occurrence)) is not None and following <= now:
            occurrence = following
        return occurrence


def timing_of(cron: object, every: object, at: object, time_zone: object) -> Timing:
    """Make a checked timing. Raises InvalidSetting."""
    given = [name for name, value in (("cron", cron), ("every", every), ("at", at)) if value is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given" if given else "no time is given"
        raise InvalidSetting(f"{what}: give one of cron, every and at")
    zone = zone_of(time_zone, cron)
    if every is not None:
        check_number("every", every, 1.0, _LONGEST_PERIOD)
        assert isinstance(every, int | float)
        return Timing(every=microseconds(every), time_zone=zone)
    if at is not None:
        return Timing(at=moment_of("at", at), time_zone=zone)
    return Timing(cron=_check_cron(cron), time_zone=zone)


def moment_of(name: str, moment: object) -> int:
    """Convert an aware ``datetime`` to microseconds. Raises InvalidSetting."""
    if not is_aware(moment):
        raise InvalidSetting(f"{name}={shown(moment)}: give an aware datetime, such as datetime.now(UTC)")
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise InvalidSetting(
            f"{name}={shown(moment)}: give a moment from the year {_FIRST_YEAR} to {_LAST_YEAR}"
        )
    return from_datetime(moment)


def _check_cron(cron: object) -> str:
    if not isinstance(cron, str):
        raise InvalidSetting(f"cron={shown(cron)} is {kind_of(cron)}: give a str such as '30 6 * * MON-FRI'")
    try:
        CronSim(_NAMED.get(cron, cron), to_datetime(0))
    except (CronSimError, ValueError) as error:
        raise InvalidSetting(
            f"cron={shown(cron)} cannot be read ({error}): give minute, hour, day of month, month and day of week, "
            "such as '30 6 * * MON-FRI', or @hourly, @daily, @weekly, @monthly or @yearly"
        ) from error
    fields = _NAMED.get(cron, cron).split()
    for (name, count), field in zip(_FIELDS[-len(fields) :], fields, strict=True):
        for step in (item.partition("/")[2] for item in field.split(",")):
            if step and int(step) > count:
                raise InvalidSetting(
                    f"cron={shown(cron)} has a step of {step} in its {name}, which has {count} values: that would not "
                    f"be every {step}; give a step up to {count}, or every=SECONDS in place of cron"
                )
    return cron


def zone_of(name: object, cron: object) -> str:
    """Return the checked name of a time zone. Raises InvalidSetting, also for one without a cron expression."""
    try:
        if not isinstance(name, str):
            raise TypeError(name)  # noqa: TRY301 - one answer for all
        ZoneInfo(name)
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise InvalidSetting(
            f"time_zone={shown(name)} is not known: give a name such as 'Europe/Berlin' or 'UTC'; where a machine has "
            "no time zones, `pip install tzdata`"
        ) from error
    if cron is None and name != "UTC":
        raise InvalidSetting(
            f"time_zone={shown(name)} has no effect without cron: leave it out, or give cron"
        )
    return name


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is at a moment. Made by :class:`~shardq.schedules.Schedules`.

    ``next`` is when its next occurrence is, None when it has ended. Nothing takes place while it is ``paused``.
    """

    id: str
    queue: str
    cron: str | None
    every: float | None  # seconds
    at: datetime | None
    time_zone: str
    until: datetime | None
    count: int | None
    overlap: Overlap
    catch_up: CatchUp
    body: bytes
    headers: Headers
    priority: int
    group: str | None
    ttl: float | None
    paused: bool
    next: datetime | None
    last: datetime | None  # the occurrence that took place last
    last_message: str | None  # its id
    sent: int  # occurrences that took place
    skipped: int  # that did not, because of ``overlap``


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored, with its progress. Moments are in microseconds."""

    queue: str
    life: str  # tells it from others of its id, before and after
    timing: Timing
    until: int | None = None
    count: int | None = None
    overlap: Overlap = "allow"
    catch_up: CatchUp = "one"
    body: bytes = b""
    headers: bytes = _pack({})  # as MessagePack: JSON has no bytes
    priority: int = DEFAULT_PRIORITY
    group: str | None = None
    ttl: float | None = None
    paused: bool = False
    next: int | None = None
    pending: int | None = None  # an occurrence that takes place: its message may be sent or not yet
    decided: int = 0  # when it was decided that it does
    last: int | None = None
    last_message: str | None = None
    sent: int = 0
    skipped: int = 0

    def within(self, moment: int | None) -> int | None:
        """Return the moment, or None if the schedule has ended by then."""
        over = self.count is not None and self.sent >= self.count
        if over or moment is None or (self.until is not None and moment > self.until):
            return None
        return moment

    def begun(self, now: int) -> Plan:
        """Return the schedule with its next occurrence after now. Raises InvalidSetting when there is none."""
        timing = self.timing
        first = timing.first(now) if self.next is None else self.next
        if self.next is None and timing.at is not None and timing.at <= now:
            at, here = (to_datetime(moment).isoformat() for moment in (timing.at, now))
            raise InvalidSetting(
                f"at={at} is in the past: it is {here} by the store's clock; give a later moment"
            )
        if first is None:
            raise InvalidSetting(f"cron={shown(timing.cron)} has no occurrence: give another expression")
        if self.until is not None and first > self.until:
            raise InvalidSetting(
                f"until={to_datetime(self.until).isoformat()} is before the first occurrence, at "
                f"{to_datetime(first).isoformat()}: give a later moment"
            )
        return msgspec.structs.replace(self, next=self.within(first))

    def following(self, now: int) -> int | None:
        """Return the first occurrence after now, as the schedule continues from ``next``."""
        if self.next is None or self.next > now:
            return self.next
        return self.within(self.timing.after(self.timing.latest(self.next, now)))

    def brought_near(self, now: int) -> Plan:
        """Return the schedule with no next occurrence that is too far ahead, as when a clock was wrong and is put back.

        Within a minute clocks may differ: then it would decide twice upon one occurrence.
        """
        assert self.next is not None
        near = self.timing.after(now + GRACE)
        if near is None or self.next <= near:
            return self
        return msgspec.structs.replace(self, next=self.within(near))

    def reopened(self, now: int) -> Plan:
        """Return the ended schedule with its next occurrence, if there is one: a clock was wrong, and is put back.

        An occurrence within a minute may have taken place by another clock, so it is left out. One that the wrong clock
        has sent is not sent again within 7 days: its key is remembered.
        """
        if self.until is None or self.timing.at is not None:
            return self
        return msgspec.structs.replace(self, next=self.within(self.timing.after(now + GRACE)))

    def advanced(self, now: int, *, waits: bool) -> Plan:
        """Decide missed occurrences when ``next`` is due, and return the schedule with the next one ahead.

        ``waits`` means that the message of the last occurrence is still there.
        """
        assert self.next is not None
        end = now if self.until is None else min(now, self.until)
        occurrence = self.timing.latest(self.next, end)
        if self.catch_up == "none" and now - occurrence > GRACE:
            return msgspec.structs.replace(self, next=self.following(now))
        if waits:
            return msgspec.structs.replace(self, next=self.following(now), skipped=self.skipped + 1)
        taken = msgspec.structs.replace(self, sent=self.sent + 1)
        return msgspec.structs.replace(
            taken, next=taken.following(now), pending=occurrence, decided=now, last=occurrence
        )

    def message(self, name: str, moment: int) -> OutgoingMessage:
        """Make the message of an occurrence."""
        marks = {ID_HEADER: name, MOMENT_HEADER: to_datetime(moment).isoformat()}
        headers = _unpack(self.headers) | marks
        return OutgoingMessage(
            body=self.body, headers=headers, priority=self.priority, group=self.group, ttl=self.ttl
        )

    def shown(self, name: str) -> Schedule:
        """Return the schedule as users see it."""
        return Schedule(
            id=name,
            queue=self.queue,
            cron=self.timing.cron,
            every=None if self.timing.every is None else seconds(self.timing.every),
            at=_datetime(self.timing.at),
            time_zone=self.timing.time_zone,
            until=_datetime(self.until),
            count=self.count,
            overlap=self.overlap,
            catch_up=self.catch_up,
            body=self.body,
            headers=_unpack(self.headers),
            priority=self.priority,
            group=self.group,
            ttl=self.ttl,
            paused=self.paused,
            next=_datetime(self.next),
            last=_datetime(self.last),
            last_message=self.last_message,
            sent=self.sent,
            skipped=self.skipped,
        )


def _datetime(moment: int | None) -> datetime | None:
    return None if moment is None else to_datetime(moment)
