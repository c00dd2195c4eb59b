"""Over two data centres: consistency levels that are refused would break a promise, and those that are taken do not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from shardq.errors import InvalidSetting
from shardq.storage.cassandra.connecting import Address
from shardq.storage.cassandra.guarantees import LEVELS, SERIAL_LEVELS, require_overlap_in
from tests.model.exploration import Explorer, Scenario
from tests.model.modelled_centres import Centres
from tests.model.modelled_table import Database
from tests.model.places import replace
from tests.model.scenarios import SCENARIOS

Note = Callable[[str, str], None]

SHOWING = ("two consumers of a bundle and a single", "low watermarks that rise")
ADDRESSES = [
    Address(("node",), "kept", consistency=level, serial_consistency=serial, local_dc=near)
    for level, serial, near in product(LEVELS, SERIAL_LEVELS, ("", "one"))
]


def _is_taken(address: Address) -> bool:
    try:
        require_overlap_in(("one", "two"), address)
    except InvalidSetting:
        return False
    return True


def _named(address: Address) -> str:
    return " ".join(filter(None, (address.consistency, address.serial_consistency, address.local_dc)))


def _in_two_centres(name: str, address: Address) -> Scenario:
    """Every second client is in the other data centre, but where all local levels ask all to be in one."""
    scenario = SCENARIOS[name]
    local = (address.consistency == "LOCAL_QUORUM", address.serial_consistency == "LOCAL_SERIAL")
    in_one = all(local) and bool(address.local_dc)
    scripts = tuple(
        replace(script, centre=0 if in_one else number % 2) for number, script in enumerate(scenario.scripts)
    )
    assert isinstance(scenario.database, Database)
    database = Centres.holding(scenario.database, local_plain=local[0], local_serial=local[1])
    return replace(scenario, scripts=scripts, database=database, misled=(False,))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("address", [each for each in ADDRESSES if _is_taken(each)], ids=_named)
@pytest.mark.parametrize("name", SHOWING)
def test_what_is_taken_breaks_no_promise(name: str, address: Address, most_states: int, note: Note) -> None:
    explored = Explorer(_in_two_centres(name, address)).explore(most_states // 4)
    note(f"{name}, {_named(address)}", str(explored))
    assert explored.violation is None, str(explored)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("address", [each for each in ADDRESSES if not _is_taken(each)], ids=_named)
def test_what_is_refused_would_have_broken_a_promise(address: Address, note: Note) -> None:
    for name in SHOWING:
        explorer = Explorer(_in_two_centres(name, address))
        found = explorer.walk(seed=1, walks=300)
        if found.violation is None:
            found = explorer.explore(20_000)
        if found.violation is not None:
            note(f"{name}, {_named(address)}", f"found after {found.steps:,} steps: {found.violation}")
            return
    pytest.fail(f"{_named(address)} breaks nothing")
