"""The occurrences of a schedule: by a cron expression in a time zone, at an interval in seconds, or once.

Daylight-saving time is as in Debian's cron. An occurrence at an hour that is skipped is right after the change, and
one at an hour that comes twice is at the first of them. Expressions whose minute or hour begins with ``*`` count real
time.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from shardq.base.clock import from_datetime, is_aware, microseconds, to_datetime
from shardq.base.texts import kind_of, shown
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting

__all__ = ["Timing", "moment_of", "timing_of"]

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
    zone = _check_zone(time_zone)
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


def _check_zone(name: object) -> str:
    try:
        if not isinstance(name, str):
            raise TypeError(name)  # noqa: TRY301 - one answer for all
        ZoneInfo(name)
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise InvalidSetting(
            f"time_zone={shown(name)} is not known: give a name such as 'Europe/Berlin' or 'UTC'; where a machine has "
            "no time zones, `pip install tzdata`"
        ) from error
    return name
