"""Floors: the bare statements of each store do their whole job, and stand beside shardq in a table."""

from __future__ import annotations

import math

import click
import pytest

from shardq.bench.wording import IDLE, IDLE_WITH_SERVER
from tools.bench.floors.__main__ import GROUPS, measure_store, run, running
from tools.bench.floors.floor import TINY, Floor, Measured, Taken, check, in_turn, meanwhile
from tools.bench.floors.table import HEADINGS, asked, table
from tools.bench.rounds import RECEIVE, RECEIVE_SINGLES, SINGLE_SEND
from tools.bench.singles import ONE_AT_A_TIME, POP, SEND_THREADS

SERVERS = {"mongodb": "replica_set_url", "cassandra": "cassandra_url"}
KINDS = {
    "sqlite": {SINGLE_SEND, ONE_AT_A_TIME, POP, RECEIVE_SINGLES, IDLE},
    "mongodb": {SINGLE_SEND, SEND_THREADS, ONE_AT_A_TIME, RECEIVE_SINGLES, RECEIVE, IDLE_WITH_SERVER},
    "cassandra": {SINGLE_SEND, SEND_THREADS, RECEIVE_SINGLES, RECEIVE, IDLE_WITH_SERVER},
}


@pytest.mark.parametrize("store", GROUPS)
def test_every_row_has_figures(store: str, request: pytest.FixtureRequest) -> None:
    group = GROUPS[store]
    url = request.getfixturevalue(SERVERS[store]) if store in SERVERS else None

    with running(group, url) as server:
        found = measure_store(store, server, TINY, 1)
        knows_server = server is not None and server.usage is not None and bool(server.usage.processes)

    kinds = KINDS[store] if knows_server else KINDS[store] - {IDLE_WITH_SERVER}
    assert {each.floor.kind for each in found} == kinds
    for each in found:
        assert len(each.own) == 1 and each.bare
        for taken in (*each.own, *(one for rounds in each.bare.values() for one in rounds)):
            assert taken.value > 0 and taken.client > 0
            assert math.isfinite(taken.value + taken.client)
            assert (taken.server is not None) == knows_server
    lines = list(table(group.store, found))
    assert len(lines) == 2 + sum(len(each.bare) for each in found)
    assert {line.count(" | ") for line in lines} == {len(HEADINGS) - 1}


def test_a_row_has_medians_with_their_spread_and_ratios_within_a_round() -> None:
    own = (Taken(100.0, 30.0, 10.0), Taken(300.0, 10.0, 10.0), Taken(200.0, 20.0, 10.0))
    bare = (Taken(200.0, 10.0, 10.0), Taken(400.0, 10.0, 10.0), Taken(800.0, 10.0, 10.0))
    names = ("an insert", "pymongo alone")
    floor = Floor(kind=SINGLE_SEND, own=lambda: own[0], bare={name: lambda: bare[0] for name in names})

    first, second = list(table("MongoDB", [Measured(floor, own, dict.fromkeys(names, bare))]))[2:]

    assert "| 200/s (100 to 300), 20 + 10 µs | an insert: 400/s (200 to 800), 10 + 10 µs |" in first
    assert first.endswith("| 0.5x (0.25 to 0.75); processor 1.5x |")
    assert second.startswith("|  |  |  | *pymongo alone*: 400/s")


def test_what_is_asked_of_a_floor_is_said() -> None:
    for store, kinds in KINDS.items():
        assert all(asked(GROUPS[store].store, kind) != "nothing" for kind in kinds)


@pytest.mark.parametrize("how", [in_turn, meanwhile])
def test_what_is_claimed_is_acked_in_its_order(how) -> None:
    claimed, acked = iter(range(1, 10)), []

    how(4, lambda: next(claimed), acked.append)()

    assert acked == [1, 2, 3, 4]


def test_a_floor_that_does_less_than_its_job_fails() -> None:
    with pytest.raises(RuntimeError, match="3 were changed and 4 were to be"):
        check(3, 4)


def test_one_kind_can_be_measured_alone(capsys: pytest.CaptureFixture[str]) -> None:
    run(["sqlite", "--quick", "--rounds", "1", "--only", "idle"], standalone_mode=False)

    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")][2:]
    assert rows and rows[0].startswith(f"| {IDLE} |") and all(row.startswith("|  |") for row in rows[1:])


def test_a_kind_that_no_floor_has_is_refused() -> None:
    with pytest.raises(click.BadParameter, match=r"'speed' is in none of: .*single sends"):
        run(["sqlite", "--quick", "--only", "speed"], standalone_mode=False)
