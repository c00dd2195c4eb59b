from __future__ import annotations

import time

import pytest

import shardq
from shardq.testing import ManualClock, ManualTimer


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(start=5_000_000)
    assert clock.now() == clock.now() == 5_000_000
    clock.advance(1.5)
    assert clock.now() == 6_500_000


def test_a_manual_clock_moves_by_single_microseconds() -> None:
    clock = ManualClock()
    before = clock.now()
    clock.advance(0.000001)
    assert clock.now() == before + 1


def test_a_manual_clock_does_not_go_back() -> None:
    with pytest.raises(shardq.errors.InvalidSetting, match="back"):
        ManualClock().advance(-1)


def test_a_manual_timer_begins_at_the_present_and_stands_still_until_it_is_moved() -> None:
    before = int(time.monotonic())
    timer = ManualTimer()
    assert before <= timer() <= time.monotonic()
    assert timer() == timer()


def test_what_a_manual_timer_is_moved_by_adds_up_exactly() -> None:
    timer = ManualTimer()
    began = timer()
    for _ in range(5):
        timer.advance(0.2)
    assert timer() - began == 1.0


def test_a_manual_timer_does_not_go_back() -> None:
    with pytest.raises(shardq.errors.InvalidSetting, match="back"):
        ManualTimer().advance(-1)
