"""When occurrences are: across changes of daylight-saving time, and however many were missed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import shardq
from shardq.base.clock import from_datetime, to_datetime
from shardq.schedules.schedule import Timing, timing_of

# Berlin goes on from 02:00 to 03:00 at 2026-03-29T01:00Z, and back from 03:00 to 02:00 at 2026-10-25T01:00Z.
# New York goes on from 02:00 to 03:00 at 2026-03-08T07:00Z, and back from 02:00 to 01:00 at 2026-11-01T06:00Z.
CHANGES = [
    ("Europe/Berlin", "30 2 * * *", "2026-03-28T00:00", ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
    ("Europe/Berlin", "30 2 * * *", "2026-10-24T00:00", ["10-24T00:30", "10-25T00:30", "10-26T01:30"]),
    ("Europe/Berlin", "0 3 * * *", "2026-03-28T00:00", ["03-28T02:00", "03-29T01:00", "03-30T01:00"]),
    ("Europe/Berlin", "0 3 * * *", "2026-10-24T00:00", ["10-24T01:00", "10-25T02:00", "10-26T02:00"]),
    ("Europe/Berlin", "*/30 * * * *", "2026-03-29T00:00", ["03-29T00:30", "03-29T01:00", "03-29T01:30"]),
    ("Europe/Berlin", "0 * * * *", "2026-10-24T23:30", ["10-25T00:00", "10-25T01:00", "10-25T02:00"]),
    ("Europe/Berlin", "15,45 2 * * *", "2026-10-25T00:30", ["10-25T00:45", "10-26T01:15", "10-26T01:45"]),
    ("Europe/Berlin", "15 2,3 * * *", "2026-03-28T12:00", ["03-29T01:00", "03-29T01:15", "03-30T00:15"]),
    ("Europe/Berlin", "30 2 * * *", "2026-10-25T01:10", ["10-26T01:30", "10-27T01:30"]),
    ("America/New_York", "30 2 * * *", "2026-03-07T00:00", ["03-07T07:30", "03-08T07:00", "03-09T06:30"]),
    ("America/New_York", "30 1 * * *", "2026-10-31T00:00", ["10-31T05:30", "11-01T05:30", "11-02T06:30"]),
    ("America/New_York", "0 9 * * *", "2026-03-07T00:00", ["03-07T14:00", "03-08T13:00", "03-09T13:00"]),
    ("America/New_York", "0 9 * * *", "2026-10-31T00:00", ["10-31T13:00", "11-01T14:00", "11-02T14:00"]),
    ("America/New_York", "0 * * * *", "2026-11-01T04:30", ["11-01T05:00", "11-01T06:00", "11-01T07:00"]),
    ("UTC", "@daily", "2026-12-30T12:00", ["12-31T00:00"]),
    ("UTC", "*/20 0 0 29 2 *", "2026-03-01T00:00", []),
]


def moment(text: str) -> int:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC))


@pytest.mark.parametrize(("zone", "cron", "since", "expected"), CHANGES)
def test_daylight_saving_time_neither_doubles_nor_loses(
    zone: str, cron: str, since: str, expected: list[str]
) -> None:
    timing, at = timing_of(cron, None, None, zone), moment(since)
    for text in expected:
        found = timing.after(at)
        assert found == moment(f"2026-{text}")
        at = found


@pytest.mark.parametrize(
    "cron", ["* * * * *", "7 3 * * MON-FRI", "0 0 29 2 *", "30 2 * * *", "*/5 * * * * *"]
)
@pytest.mark.parametrize("gap", [1, 59, 61, 7_200, 86_400, 400 * 86_400])
def test_the_latest_occurrence_of_a_gap_is_the_one_before_now(cron: str, gap: int) -> None:
    timing = Timing(cron=cron, time_zone="Europe/Berlin")
    first = timing.after(moment("2026-03-28T23:17"))
    assert first is not None
    now = first + gap * 1_000_000
    latest = timing.latest(first, now)
    following = timing.after(latest)
    assert first <= latest <= now
    assert following is not None
    assert following > now


def test_a_period_keeps_its_pace() -> None:
    timing = timing_of(None, 90, None, "UTC")
    assert timing.first(1_000_000) == 91_000_000
    assert timing.latest(91_000_000, 300_000_000) == 271_000_000


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "no time is given: give one of cron"),
    ({"cron": "* * * * *", "every": 5}, "cron and every are given"),
    ({"cron": "61 * * * *"}, "cron='61 \\* \\* \\* \\*' cannot be read"),
    ({"cron": "0 0 30 2 *"}, "cannot be read"),
    ({"cron": ""}, "cannot be read"),
    ({"cron": "*/61 * * * *"}, "a step of 61 in its minute, which has 60 values"),
    ({"cron": "1,*/90 * * * *"}, "a step of 90 in its minute"),
    ({"cron": "10-20/100 * * * *"}, "a step of 100 in its minute"),
    ({"cron": "*/61 * * * * *"}, "a step of 61 in its second"),
    ({"cron": "0 */25 * * *"}, "a step of 25 in its hour, which has 24 values"),
    ({"cron": "0 0 */32 * *"}, "a step of 32 in its day of month"),
    ({"cron": "0 0 1 */13 *"}, "a step of 13 in its month"),
    ({"cron": "0 0 * * */8"}, "a step of 8 in its day of week"),
    ({"cron": 5}, "is an int"),
    ({"every": 0.5}, "every=0.5 is out of range"),
    ({"every": "5"}, "every='5' is a str"),
    ({"at": datetime(2027, 1, 1)}, "aware datetime"),
    ({"at": to_datetime(0), "time_zone": "Europe/Bonn"}, "time_zone='Europe/Bonn' is not known"),
    ({"every": 5, "time_zone": "../etc/passwd"}, "is not known"),
    ({"every": 5, "time_zone": "Europe"}, "is not known"),
    ({"every": 5, "time_zone": None}, "is not known"),
    ({"every": 5, "time_zone": "Europe/Berlin"}, "time_zone='Europe/Berlin' has no effect without cron"),
    ({"at": to_datetime(0), "time_zone": "Europe/Berlin"}, "has no effect without cron"),
]


@pytest.mark.parametrize(
    "cron", ["*/60 * * * *", "0 */24 * * *", "0 0 */31 * *", "0 0 1 */12 *", "0 0 * * */7", "*/60 * * * * *"]
)
def test_a_step_over_all_values_of_a_field_is_once(cron: str) -> None:
    assert timing_of(cron, None, None, "UTC").after(0) is not None


@pytest.mark.parametrize(("given", "text"), BAD)
def test_what_cannot_be_read_is_refused_by_name(given: dict[str, Any], text: str) -> None:
    values: dict[str, Any] = {"cron": None, "every": None, "at": None, "time_zone": "UTC"} | given
    with pytest.raises(shardq.InvalidSetting, match=text):
        timing_of(**values)
