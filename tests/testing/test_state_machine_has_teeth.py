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
    "ForgetsDeliveries",
    "ForgetsMoves",
    "ForgetsShards",
    "KeepsKeysOfDroppedQueues",
    "KeepsNoHistory",
    "LosesTheLastOfABulk",
    "ReleasesAtOnce",
    "RemembersDroppedQueues",
    "ReservesForEveryone",
    "ShortensUnasked",
    "ShowsBodiesUnasked",
    "StartsWhatItExtends",
    "SweepsNothing",
    "TakesAcksForMoves",
}
QUICK = settings(
    max_examples=3_000,  # it ends at the first failure; bundle ids are random, so some searches take longer
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize(
    "broken", [each for each in BROKEN_STORES if each.__name__ not in BEYOND], ids=lambda each: each.__name__
)
def test_the_state_machine_fails_a_store_that(broken: type[WrappedStore], wrapped) -> None:
    harness = wrapped(broken)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(state_machine_for(lambda: harness), settings=QUICK)


def test_the_state_machine_passes_a_store_that_is_only_wrapped(wrapped) -> None:
    harness = wrapped(WrappedStore)
    few = settings(QUICK, max_examples=5)
    run_state_machine_as_test(state_machine_for(lambda: harness), settings=few)
