"""The state machine catches every defect that can be seen in a shard."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shardq.storage.wrapped_store import WrappedStore
from shardq.testing.broken_stores import BROKEN_STORES
from shardq.testing.state_machine import state_machine_for

BEYOND = {  # not seen in one shard, or only after long searches; the contracts catch all of them
    "ConfirmsKeysForAnyone",
    "CountsNoStart",
    "DropsTheNameOnly",
    "FinishesHoweverOftenDelivered",
    "FinishesWhatHasKeys",
    "FinishesWhateverItsAge",
    "FinishesWithoutHistory",
    "ForgetsDeliveries",
    "ForgetsMoves",
    "ForgetsShards",
    "ForgetsWhatItFinished",
    "KeepsKeysOfDroppedQueues",
    "KeepsNoHistory",
    "LosesTheLastOfABulk",
    "ReleasesAtOnce",
    "RemembersDroppedQueues",
    "ReplacesAtTheEnd",
    "ReservesForEveryone",
    "ShortensUnasked",
    "ShowsBodiesUnasked",
    "StartsWhatItExtends",
    "SweepsNothing",
    "TakesAcksForMoves",
}
SAMPLE = {"DropsAcks", "DuplicatesAppends", "TakesMoreThanAsked"}
"""Found within seconds. Other searches are of random length, up to minutes; `make test-wide` makes them all."""

QUICK = settings(
    max_examples=3_000,  # it ends at the first failure; bundle ids are random, so some searches take longer
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _marks(broken: type[WrappedStore]) -> list[pytest.MarkDecorator]:
    return [] if broken.__name__ in SAMPLE else [pytest.mark.wide]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(each, id=each.__name__, marks=_marks(each))
        for each in BROKEN_STORES
        if each.__name__ not in BEYOND
    ],
)
def test_the_state_machine_fails_a_store_that(broken: type[WrappedStore], wrapped) -> None:
    harness = wrapped(broken)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(state_machine_for(lambda: harness), settings=QUICK)


def test_the_state_machine_passes_a_store_that_is_only_wrapped(wrapped) -> None:
    harness = wrapped(WrappedStore)
    few = settings(QUICK, max_examples=5)
    run_state_machine_as_test(state_machine_for(lambda: harness), settings=few)
