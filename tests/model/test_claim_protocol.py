"""The Cassandra store's promises hold in every order of requests, answers and losses that is tried."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from tests.model.exploration import Explorer
from tests.model.grouped_scenarios import GROUPED_SCENARIOS
from tests.model.mutations import MUTATIONS
from tests.model.places import replace
from tests.model.scenarios import SCENARIOS as PLAIN_SCENARIOS
from tests.model.scenarios import STANDSTILL

SCENARIOS = PLAIN_SCENARIOS | GROUPED_SCENARIOS
Note = Callable[[str, str], None]

HARD_TO_FIND = {"what a disturbed look did not find counts as gone"}
"""A defect that takes as long as all others."""


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_no_order_of_steps_breaks_a_promise(name: str, most_states: int, note: Note) -> None:
    explored = Explorer(SCENARIOS[name]).explore(most_states)
    note(name, str(explored))
    assert explored.violation is None, str(explored)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_no_walk_to_the_end_breaks_a_promise(name: str, most_states: int, note: Note) -> None:
    walked = Explorer(SCENARIOS[name]).walk(seed=most_states, walks=most_states // 20)
    note(f"{name}, {most_states // 20} walks", str(walked))
    assert walked.violation is None, str(walked)


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.long) if each in HARD_TO_FIND else each for each in MUTATIONS],
)
def test_a_defect_of_the_protocol_is_found(name: str, note: Note) -> None:
    mutation = MUTATIONS[name]
    explorer = Explorer(SCENARIOS[mutation.scenario])
    with mutation.defect:
        found = explorer.walk(seed=1, walks=500)
        if found.violation is None:
            found = explorer.explore(40_000)
    note(name, f"found after {found.steps:,} steps: {found.violation}")
    assert found.violation is not None, f"not found in {found}"
    with pytest.raises(type(found.violation), match=mutation.seen):
        raise found.violation


def test_a_client_that_stands_still_for_a_minute_hides_what_it_claims_until_a_deep_look(note: Note) -> None:
    walked = Explorer(STANDSTILL).walk(seed=3, walks=4000)
    note("a client that stands still", f"found after {walked.steps:,} steps: {walked.violation}")
    assert "not delivered any more" in str(walked.violation)
    looked = Explorer(replace(STANDSTILL, misled=(True,))).walk(seed=3, walks=400)
    assert looked.violation is None, str(looked)
