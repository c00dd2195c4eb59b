from __future__ import annotations

import pytest

import shardq
from shardq.testing import ManualClock


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
