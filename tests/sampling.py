"""What the tests take a sample of, and `make test-wide` does in full.

A sample is where one rule is repeated many times, or where tests are tested. It is the same in every run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["WIDE", "every_third", "fewer_and_fewer", "some"]

WIDE = "SHARDQ_TEST_WIDE" in os.environ
"""Whether everything is done."""

SHARE = 3


def every_third(most: int, *turn: int) -> range:
    """Numbers below ``most``: every third one, or all.

    Tests that differ by one in their turn take the neighbours, so that three of them take all.
    """
    return range(most) if WIDE else range(sum(turn) % SHARE, most, SHARE)


def some(most: int, sample: int) -> int:
    """How many to do, out of so many."""
    return most if WIDE else sample


def fewer_and_fewer(most: int, turn: int) -> Iterator[int]:
    """Numbers below ``most``: ever fewer of them the greater they are, or all."""
    number, step = turn, 1
    while number < most:
        yield number
        number += 1 if WIDE else step
        step += 12
