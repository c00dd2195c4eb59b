"""Which names a pattern stands for, and which patterns are refused."""

from __future__ import annotations

import time

import pytest

import shardq
from shardq.base.patterns import NamePattern, is_pattern


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("mail/*", ["mail/a", "mail/a.b", "mail/"], ["mail", "mail/a/b", "xmail/a"]),
        ("mail/**", ["mail/a", "mail/a/b", "mail/"], ["mail", "mails/a"]),
        ("*/urgent", ["mail/urgent", "x/urgent"], ["urgent", "a/b/urgent", "mail/urgent2"]),
        ("**/urgent", ["mail/urgent", "a/b/urgent"], ["urgent", "mail/urgent/x"]),
        ("orders*", ["orders", "orders-eu"], ["orders/eu", "my-orders"]),
        ("**a*b", ["xa/ab", "a/a/ab", "ab"], ["a/b", "ab/"]),
        ("a.c*", ["a.c", "a.cd"], ["abc"]),
        ("*", ["orders"], ["mail/a"]),
        ("**", ["orders", "mail/a"], []),
    ],
)
def test_one_star_stays_within_a_level_and_two_cross_it(
    pattern: str, matched: list[str], others: list[str]
) -> None:
    parsed = NamePattern.parse(pattern)
    assert [name for name in matched + others if parsed.matches(name)] == matched


def test_many_stars_take_no_time() -> None:
    began = time.process_time()
    assert not NamePattern.parse("*a" * 50 + "b").matches("a" * 200)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("mail/[ab]*", "'mail/[ab]*'"),
        ("mail/***", "'***'"),
        ("", "cannot match"),
        ("/mail*", "cannot match"),
        ("_shardq/*", "shardq makes for itself"),
        ("a" * 500 + "*", "400"),
        (3, "is an int"),
    ],
)
def test_a_pattern_that_can_match_nothing_is_refused_with_the_remedy(pattern: object, told: str) -> None:
    with pytest.raises(shardq.InvalidName, match="pattern") as raised:
        NamePattern.parse(pattern)
    assert told in str(raised.value)


def test_only_a_text_with_a_star_is_a_pattern() -> None:
    assert [is_pattern(each) for each in ("mail/*", "mail", 3, None)] == [True, False, False, False]
