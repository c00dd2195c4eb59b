"""The clock of the servers, on a machine that stands still or is set, with servers that disagree."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from shardq.errors import StoreUnavailable
from shardq.storage import clocks
from shardq.storage.clocks import ServerClock

SECOND = 1_000_000
TRUE = 1_700_000_000 * SECOND  # the time when a test begins


class World:
    """A true time, this machine's two clocks, and the nodes' clocks by how much they are ahead."""

    def __init__(self) -> None:
        self.time, self.uptime, self.time_of_day = TRUE, 5_000 * SECOND, TRUE
        self.nodes: list[int] = [0]
        self.asked = 0
        self.known: int | None = None  # what was told the last time it was asked

    def pass_(self, seconds: float, *, uptime: bool = True, time_of_day: bool = True) -> None:
        self.time += round(seconds * SECOND)
        self.uptime += round(seconds * SECOND) * uptime
        self.time_of_day += round(seconds * SECOND) * time_of_day

    def measure(self, known: int | None) -> list[int]:
        self.asked += 1
        self.known = known
        if not self.nodes:
            raise StoreUnavailable("no server answers, on purpose")
        return [self.time + ahead - self.uptime for ahead in self.nodes]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(clocks, "uptime", lambda: world.uptime)
    monkeypatch.setattr(clocks, "time_of_day", lambda: world.time_of_day)
    return world


@pytest.fixture
def clock(world: World) -> ServerClock:
    return ServerClock(world.measure)


def test_it_is_carried_on_without_asking_and_asks_twice_a_minute(world: World, clock: ServerClock) -> None:
    for _ in range(60):
        assert clock.now() == world.time
        world.pass_(1)
    assert world.asked == 2


def test_it_is_carried_on_without_asking_while_a_connection_is_held(world: World, clock: ServerClock) -> None:
    assert clock.carried_on() == world.time  # the first time nothing is known
    world.pass_(100)
    assert clock.carried_on() == world.time
    assert world.asked == 1
    world.pass_(1, uptime=False)
    assert clock.carried_on() == world.time
    assert world.asked == 2


def test_who_measures_is_told_what_was_known(world: World, clock: ServerClock) -> None:
    clock.now()
    assert world.known is None
    world.nodes = [7]
    world.pass_(31)
    clock.now()
    assert world.known == TRUE - 5_000 * SECOND


@pytest.mark.parametrize("day", [-3_600, 3_600])
def test_the_time_of_day_here_does_not_matter(world: World, clock: ServerClock, day: int) -> None:
    world.time_of_day += day * SECOND
    assert clock.now() == world.time


@pytest.mark.parametrize(
    "stands",
    [
        pytest.param({"uptime": False}, id="no uptime passes in a suspension"),
        pytest.param({"time_of_day": False}, id="no time of day passes"),
    ],
)
@pytest.mark.parametrize("seconds", [0.6, 120])
def test_a_machine_that_stood_still_knows_before_it_answers(
    world: World, clock: ServerClock, stands: dict[str, bool], seconds: float
) -> None:
    clock.now()
    world.pass_(seconds, **stands)
    assert clock.now() == world.time
    assert world.asked == 2


def test_a_machine_that_stands_still_while_it_asks_asks_again(world: World) -> None:
    def measure(known: int | None) -> list[int]:
        leads = world.measure(known)
        if world.asked == 1:
            world.pass_(120, uptime=False)
        return leads

    clock = ServerClock(measure)
    clock.now()
    assert clock.now() == world.time


def test_a_time_of_day_that_is_set_changes_nothing(world: World, clock: ServerClock) -> None:
    clock.now()
    world.time_of_day -= 600 * SECOND
    world.pass_(1)
    assert clock.now() == world.time


def test_it_does_not_answer_in_doubt_when_no_server_does(world: World, clock: ServerClock) -> None:
    clock.now()
    world.nodes = []
    world.pass_(120, uptime=False)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            clock.now()
    world.nodes = [0]
    assert clock.now() == world.time


def test_it_goes_on_by_what_it_knows_when_no_server_answers(world: World, clock: ServerClock) -> None:
    clock.now()
    world.nodes = []
    world.pass_(60)
    assert [clock.now() for _ in range(3)] == [world.time] * 3
    assert world.asked == 2


@pytest.mark.parametrize("ahead", [-30, 30])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_of_three_nodes_whose_clock_is_wrong_is_left_out(
    world: World, clock: ServerClock, place: int, ahead: int, caplog: pytest.LogCaptureFixture
) -> None:
    world.nodes = [0, 0]
    world.nodes.insert(place, ahead * SECOND)
    with caplog.at_level(logging.WARNING):
        assert clock.now() == world.time
    assert "30.0 s apart" in caplog.text


@pytest.mark.parametrize("nodes", [[0, 30 * SECOND], [-30 * SECOND, 0]])
def test_of_two_nodes_that_disagree_the_one_counts_that_says_what_was_known(
    world: World, clock: ServerClock, nodes: list[int]
) -> None:
    world.time_of_day += 3_600 * SECOND
    assert clock.now() == world.time
    world.nodes = nodes
    world.pass_(31)
    assert clock.now() == world.time


def test_of_two_nodes_that_disagree_at_first_the_one_counts_that_agrees_with_this_machine(
    world: World, clock: ServerClock
) -> None:
    world.nodes = [30 * SECOND, 0]
    assert clock.now() == world.time


def test_nodes_that_agree_are_not_worth_a_warning(
    world: World, clock: ServerClock, caplog: pytest.LogCaptureFixture
) -> None:
    world.nodes = [0, 900_000]
    with caplog.at_level(logging.WARNING):
        assert clock.now() == world.time
    assert not caplog.records


def test_how_long_ago_something_was_is_not_made_less_by_a_clock_that_stands(world: World) -> None:
    checks: list[Callable[[], None]] = [
        lambda: world.pass_(10, uptime=False),
        lambda: world.pass_(10, time_of_day=False),
    ]
    for stand_still in checks:
        moment = clocks.Moment.now()
        stand_still()
        assert moment.passed() == 10
