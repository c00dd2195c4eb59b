"""What a subscription takes, and which filters and subjects are refused when they are made."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import pytest

import shardq
from shardq.topics import Filter, InvalidFilter, Topic
from shardq.topics.filters import SUBJECT, check_subject


@pytest.mark.parametrize(
    ("pattern", "taken", "left_out"),
    [
        ("orders", ["orders"], ["orders.7", "order", "orders2"]),
        (
            "orders.*.created",
            ["orders.7.created", "orders.a-b.created"],
            ["orders.created", "orders.7.8.created"],
        ),
        ("orders.>", ["orders.7", "orders.7.created"], ["orders", "order.7"]),
        ("*", ["orders"], ["orders.7"]),
        (">", ["orders", "orders.7"], []),
        ("*.paid.>", ["a.paid.b", "a.paid.b.c"], ["a.paid", "paid.a.b"]),
        ("a+b.(c)", ["a+b.(c)"], ["aab.c"]),
    ],
)
def test_wildcards_are_those_of_nats(pattern: str, taken: list[str], left_out: list[str]) -> None:
    made = Filter.of(pattern)
    assert [each for each in taken + left_out if made.takes({SUBJECT: each})] == taken
    assert not made.takes(None)


@pytest.mark.parametrize(
    ("condition", "taken", "left_out"),
    [
        ("eu", ["eu"], ["us", 1, None]),
        (["eu", 1], ["eu", 1, 1.0], ["us", True, None]),
        ({"!=": ["eu", "us"]}, ["asia", 1], ["eu", None]),
        ({">=": 10, "<": 20}, [10, 19.5], [9, 20, "15", None]),
        ({">": "b"}, ["c"], ["b", 5]),
        ({"prefix": "a"}, ["a", "ab"], ["ba", 1, None]),
        ({"exists": True}, ["", 0], [None]),
        ({"exists": False}, [None], ["", 0]),
        (b"\0", [b"\0"], ["\0"]),
        (True, [True], [1, "true"]),
    ],
)
def test_conditions_on_a_header(condition: Any, taken: list[Any], left_out: list[Any]) -> None:
    made = Filter.of(headers={"h": condition})
    values = taken + left_out
    assert [each for each in values if made.takes({} if each is None else {"h": each})] == taken


def test_all_conditions_hold_and_one_of_the_subjects() -> None:
    made = Filter.of(["a.>", "b"], headers={"x": 1, "y": {"exists": True}})
    assert made.takes({SUBJECT: "b", "x": 1, "y": 0})
    assert not made.takes({SUBJECT: "b", "x": 1})
    assert not made.takes({SUBJECT: "c", "x": 1, "y": 0})
    assert str(made) == "a.> or b and x = 1 and y exists True"
    assert str(Filter()) == "everything"


class Operator(str, enum.Enum):  # noqa: UP042 - whose members are written otherwise
    SAME = "="
    OTHER = "!="
    LEAST = ">="
    BEGINS = "prefix"
    THERE = "exists"


@pytest.mark.parametrize("using", Operator)
def test_an_operator_may_be_of_an_enum(using: Operator) -> None:
    value = {"exists": True, ">=": 1}.get(using.value, "a")
    made = Filter.of(headers={"h": {using: value}})
    assert made == Filter.of(headers={"h": {using.value: value}})
    assert made.takes({"h": value}) == (using is not Operator.OTHER)


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1.0, True), (0, False), ([0, 2], [False, 2]), ({"!=": 1}, {"!=": True})]
)
def test_filters_that_take_different_messages_are_not_equal(one: Any, other: Any) -> None:
    first, second = Filter.of(headers={"h": one}), Filter.of(headers={"h": other})
    assert first != second
    assert len({first, second}) == 2


def test_the_order_in_which_a_filter_is_written_changes_nothing() -> None:
    one = Filter.of(["a", "b"], headers={"h": [1, 2], "total": {">=": 1, "<": 9}})
    other = Filter.of(["b", "a"], headers={"total": {"<": 9, ">=": 1}, "h": [2, 1]})
    assert one == other
    assert hash(one) == hash(other)


def test_numbers_that_are_equal_make_equal_filters() -> None:
    assert Filter.of(headers={"h": 1}) == Filter.of(headers={"h": 1.0})
    assert hash(Filter.of(headers={"h": 1})) == hash(Filter.of(headers={"h": 1.0}))


def test_values_of_a_set_are_in_one_order_in_all_processes() -> None:
    class Backwards(frozenset[str]):
        def __iter__(self) -> Iterator[str]:
            return iter(sorted(frozenset.__iter__(self), reverse=True))

    made = Filter.of(headers={"h": frozenset(["a", "b", "c"])})
    assert made == Filter.of(headers={"h": Backwards(["a", "b", "c"])})


@pytest.mark.parametrize(
    "pattern", ["", ".", "a..b", "a.", "a.>.b", "a b", "a*", "a.b>", "x" * 201, "\ud800", 7, None, [7]]
)
def test_a_malformed_pattern_is_refused(pattern: Any) -> None:
    with pytest.raises(InvalidFilter, match="subject="):
        Filter.of(pattern)


@pytest.mark.parametrize(
    "headers",
    [{"h": {}}, {"h": {"~": 1}}, {"h": None}, {"h": []}, {"h": {">": True}}, {"h": {"prefix": 1}}, {"": 1}, {1: 1},
     {"h": {"exists": 1}}, {"h": float("nan")}, {"h": 10**5000}, {10**5000: 1},
     {"h": {10**5000: 1}}, {"h": {"<": [1, 2]}}, ["h"], {"h": 2**64},
     {"h": "\ud800"}, {"\ud800": 1}],
)  # fmt: skip
def test_a_malformed_condition_is_refused(headers: Any) -> None:
    with pytest.raises(InvalidFilter, match="header"):
        Filter.of(headers=headers)


def test_a_filter_that_is_made_without_its_function_is_checked_too() -> None:
    with pytest.raises(InvalidFilter, match="subject="):
        Filter(subjects=("a..b",))


@pytest.mark.parametrize(
    "arguments",
    [
        {"headers": ("h",)},
        {"headers": []},
        {"headers": None},
        {"subjects": "orders"},
        {"subjects": ["orders"]},
        {"subjects": None},
    ],
)
def test_a_filter_that_could_not_be_read_again_is_not_made(arguments: dict[str, Any]) -> None:
    # The state of a topic that had one would be lost to everybody.
    with pytest.raises(InvalidFilter, match=r"Filter\.of"):
        Filter(**arguments)


def test_a_malformed_filter_makes_no_subscription(topic: Topic) -> None:
    with pytest.raises(InvalidFilter):
        topic.subscribe("mail", filter="orders..created")
    assert topic.subscriptions() == ()


@pytest.mark.parametrize("subject", ["", "a.*", "a.>", "a..b", "a b", "x" * 201, "\ud800", 7])
def test_a_malformed_subject_is_refused(subject: Any) -> None:
    with pytest.raises(shardq.InvalidMessage, match="subject="):
        check_subject(subject)
