"""What is stored in parts: once one of them is, whatever fails leaves it open how much is."""

from __future__ import annotations

import pytest

from shardq.base.shard import Shard
from shardq.errors import MessageTooLarge, OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.abilities import TransactionEnded
from shardq.storage.requests import Append, Bundle
from shardq.storage.writing import append_in_parts
from shardq.testing import BundleFactory, ManualClock

FAILURES = {
    "away": StoreUnavailable("the store is away"),
    "refused": StoreUnavailable("the store refuses to write", retryable=False),
    "unknown": OutcomeUnknown("the store did not answer"),
    "too large": MessageTooLarge("a bundle is too large"),
    "rolled back": TransactionEnded("all of the transaction is rolled back"),
}
UNKNOWN = {"away", "refused", "unknown"}


def fail_at(part: int, error: ShardqError) -> ShardqError:
    """What an append of three bundles raises, each a part of its own, of which one fails."""
    make = BundleFactory(ManualClock().now)
    bundles = [make() for _ in range(3)]

    def put(some: list[Bundle]) -> None:
        if some == [bundles[part]]:
            raise error

    request = Append(Shard("letters", 0, 0), tuple(bundles))
    with pytest.raises(ShardqError) as raised:
        append_in_parts(request, put, most_bytes=1 << 20, most_bundles=1)
    return raised.value


@pytest.mark.parametrize("name", FAILURES)
def test_the_first_part_that_fails_is_told_as_it_failed(name: str) -> None:
    assert fail_at(0, FAILURES[name]) is FAILURES[name]


@pytest.mark.parametrize("part", [1, 2])
@pytest.mark.parametrize("name", FAILURES)
def test_a_later_part_that_fails_leaves_the_outcome_of_the_whole_unknown(name: str, part: int) -> None:
    raised = fail_at(part, FAILURES[name])
    if name in UNKNOWN:
        assert isinstance(raised, OutcomeUnknown)
        assert "is stored: repeat it" in str(raised)
        assert raised.__cause__ is FAILURES[name]
    else:
        assert raised is FAILURES[name]
