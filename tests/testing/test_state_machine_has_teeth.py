"""The state machine catches defects that can be seen in a shard."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shardq.storage.wrapped_store import WrappedStore
from shardq.testing.state_machine import state_machine_for
from tests.defective_stores.leases import DropsAcks
from tests.defective_stores.stores import DuplicatesAppends, TakesMoreThanAsked

SAMPLE = (DropsAcks, DuplicatesAppends, TakesMoreThanAsked)
"""Found within seconds. Searches for others are of random length, up to minutes; the contracts catch all of them."""

QUICK = settings(
    max_examples=3_000,  # it ends at the first failure; bundle ids are random, so some searches take longer
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("broken", SAMPLE, ids=lambda each: each.__name__)
@pytest.mark.timeout(900)
def test_the_state_machine_fails_a_store_that(broken: type[WrappedStore], wrapped) -> None:
    harness = wrapped(broken)
    with pytest.raises((AssertionError, ExceptionGroup)) as caught:
        run_state_machine_as_test(state_machine_for(lambda: harness), settings=QUICK)
    # a search that ran out of time ends with a group of other errors
    assert any(isinstance(each, AssertionError) for each in _single_errors(caught.value)), caught.value


def _single_errors(error: BaseException) -> list[BaseException]:
    """Return the error, or all that a group of errors holds."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [single for each in error.exceptions for single in _single_errors(each)]


def test_the_state_machine_passes_a_store_that_is_only_wrapped(wrapped) -> None:
    harness = wrapped(WrappedStore)
    few = settings(QUICK, max_examples=5)
    run_state_machine_as_test(state_machine_for(lambda: harness), settings=few)
