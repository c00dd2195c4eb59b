"""Permits are cut into bundles in one way, whatever their number is and was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardq
from shardq.base.rate import Rate
from shardq.core.limits.permits import MOST_PERMITS, Blocks, blocks_of
from shardq.core.limits.shares import Window

numbers = st.integers(1, MOST_PERMITS)


@given(numbers)
def test_blocks_hold_each_permit_once(permits: int) -> None:
    held = [
        number for block in blocks_of(permits) for number in range(block.first, block.first + block.count)
    ]
    assert held == list(range(len(held)))
    assert permits <= len(held) <= max(16, 2 * permits)
    assert len(blocks_of(permits)) <= 22


@given(numbers, numbers)
def test_the_blocks_of_fewer_permits_are_the_first_of_those_of_more(one: int, other: int) -> None:
    fewer, more = sorted([blocks_of(one), blocks_of(other)], key=len)
    assert more[: len(fewer)] == fewer


def test_a_message_is_the_same_permit_whoever_made_it() -> None:
    one, other = Blocks("_shardq/permits/a").bundles(100), Blocks("_shardq/permits/a").bundles(40)
    assert [bundle.id for bundle in other] == [bundle.id for bundle in one][: len(other)]
    assert Blocks("_shardq/permits/a").number(one[17].id, 3) == 35
    # Those of another queue or kind are others, as a store may know a bundle by its id alone
    for others in (Blocks("_shardq/permits/b"), Blocks("_shardq/permits/a", "60")):
        assert not {bundle.id for bundle in others.bundles(100)} & {bundle.id for bundle in one}
    assert Blocks("_shardq/permits/b").number(one[0].id, 0) >= MOST_PERMITS


@given(st.integers(1, 1_000_000))
def test_permits_for_a_number_never_let_in_more_and_few_less(messages: int) -> None:
    window = Window.of_number(messages)
    assert 1 <= window.permits <= MOST_PERMITS
    assert messages - window.weight < window.permits * window.weight <= messages
    assert window.weight == 1 or messages > MOST_PERMITS


@given(st.integers(1, 1_000_000), st.integers(1, 604_800))
def test_permits_for_a_rate_never_let_in_more_and_few_less(messages: int, seconds: int) -> None:
    window = Window.of_rate(Rate(messages, seconds))
    assert 1 <= window.permits <= MOST_PERMITS
    allowed = window.permits * window.weight * seconds * 1_000_000
    assert allowed <= messages * window.period + window.permits * window.weight * seconds
    assert allowed >= 0.99 * messages * window.period
    assert window.period >= 1_000_000


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1/s", Rate(1, 1)),
        ("6000/m", Rate(6_000, 60)),
        ("5/2h", Rate(5, 7_200)),
        ("1000000/7d", Rate(10**6, 604_800)),
    ],
)
def test_a_rate_is_messages_and_a_period(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "5/",
        "/s",
        "0/s",
        "1000001/s",
        "5/0s",
        "5/8d",
        "5 / s",
        "-1/s",
        "1.5/s",
        "5/w",
        "\u0665/s",
        5,
        None,
    ],
)
def test_what_is_no_rate_is_named(text: object) -> None:
    with pytest.raises(shardq.InvalidSetting, match="rate_limit="):
        Rate.parse(text)
