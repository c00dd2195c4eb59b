"""The state machine catches every defect that can be seen in a shard."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shardq.storage.wrapped_store import WrappedStore
from shardq.testing.broken_applications import BROKEN_LARGE_BODIES, BROKEN_SCHEDULES, BROKEN_TOPICS
from shardq.testing.broken_limits import BROKEN_LIMITS
from shardq.testing.broken_stores import BROKEN_STORES
from shardq.testing.broken_transactions import BROKEN_TRANSACTIONS
from shardq.testing.state_machine import state_machine_for

BEYOND = {  # not in what the machine does and compares, or seen after long searches; the contracts catch them all
    "AnswersOnlyWhatItFinds",
    "AnswersWhatWasAsked",
    "ChangesAllOrNone",
    "ConfirmsKeysForAnyone",
    "CountsEveryDelivery",
    "CountsNoStart",
    "DropsTheNameOnly",
    "DropsWhatHasChanged",
    "FindsBundlesOnce",
    "FinishesHoweverOftenDelivered",
    "FinishesWhatHasExpired",
    "FinishesWhatHasKeys",
    "FinishesWhateverItsAge",
    "FinishesWithoutHistory",
    "ForgetsDeliveries",
    "ForgetsExpiry",
    "ForgetsExpiryOfWhatItSplits",
    "ForgetsMoves",
    "ForgetsShards",
    "ForgetsTheDead",
    "ForgetsWhatItFinished",
    "HidesExpiryWithTheBodies",
    "HidesWhatIsHeldForLong",
    "HidesWhoHolds",
    "KeepsEntriesOfDroppedQueues",
    "KeepsKeysOfDroppedQueues",
    "KeepsNoHistory",
    "LetsEntriesExpire",
    "ListsTheFirstPageOnly",
    "LooksAtAllTimes",
    "LooksAtNoOtherPriority",
    "LosesTheLastOfABulk",
    "MeasuresNothing",
    "MeasuresWhatIsHeld",
    "MeasuresWholeBundles",
    "OrdersGroupsByIds",
    "ReadsAPathInNames",
    "ReleasesAtOnce",
    "ReleasesTheEntryOfAnother",
    "RemembersDroppedQueues",
    "RemembersForEver",
    "ReplacesAtTheEnd",
    "ReplacesWithoutComparing",
    "ReservesForEveryone",
    "SettlesStepByStep",
    "ShortensUnasked",
    "ShowsBodiesUnasked",
    "ShowsWhatNobodyHolds",
    "StartsWhatItExtends",
    "StopsAtALostForward",
    "SweepsNothing",
    "TakesAcksForMoves",
    "TellsEachOfAll",
    "TellsOfOneQueueOnly",
}
UNKNOWN = (
    *BROKEN_LIMITS,
    *BROKEN_TRANSACTIONS,
    *BROKEN_TOPICS,
    *BROKEN_SCHEDULES,
    *BROKEN_LARGE_BODIES,
)
"""Of what the machine does not do."""
SAMPLE = {"DropsAcks", "DuplicatesAppends", "TakesMoreThanAsked"}
"""Found within seconds. Other searches are of random length, up to minutes."""

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
    return [] if broken.__name__ in SAMPLE else [pytest.mark.long]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(each, id=each.__name__, marks=_marks(each))
        for each in BROKEN_STORES
        if each.__name__ not in BEYOND and each not in UNKNOWN
    ],
)
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
