"""What a request costs that names many parts of one bundle, counted in calls of functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq.storage.mongodb.documents import Row, Slice
from shardq.storage.mongodb.slicing import cut, fenced
from shardq.storage.requests import Fenced, Span
from tests.function_calls import function_calls

BUNDLE, TOKEN, OTHER = b"b" * 16, b"t" * 16, b"o" * 16


def _row(count: int, token: bytes) -> Row:
    """A bundle of which every second message was acked."""
    slices = tuple(Slice(position, 1, 0, 1, token) for position in range(0, 2 * count, 2))
    return Row(BUNDLE, {}, slices, ())


def _spans(count: int) -> list[Span]:
    return [Span(BUNDLE, position, 1, TOKEN) for position in range(0, 2 * count, 2)]


def _cut(count: int) -> None:
    held, rest = cut(_row(count, TOKEN), _spans(count))
    assert (len(held), len(rest)) == (count, 0)


def _told_lost(count: int) -> None:
    spans = _spans(count)
    assert fenced(spans, {BUNDLE: _row(count, OTHER)}) == Fenced(lost=tuple(spans))


def _told_held(count: int) -> None:
    assert fenced(_spans(count), {BUNDLE: _row(count, TOKEN)}) == Fenced()


@pytest.mark.parametrize("do", [_cut, _told_lost, _told_held])
def test_settling_the_rest_of_a_bundle_that_was_cut_costs_as_much_as_there_is_not_its_square(
    do: Callable[[int], None],
) -> None:
    few, many = function_calls(lambda: do(100)), function_calls(lambda: do(800))
    assert many < 10 * few
