"""The schedule follows from its seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.faults.faults import Faults
from tools.faults.nemesis import Nemesis
from tools.faults.schedule import Step, schedule
from tools.faults.target import Target
from tools.faults.targets import TARGETS

FAULTS, NODES = ("kill", "pause", "skew"), ("kill_node", "pause_node")
REST = 12.0


def steps_of(seed: str, seconds: float, gap: float) -> list[Step]:
    return schedule(FAULTS, NODES, seed=seed, seconds=seconds, gap=gap, lasting=2 * gap, rest=REST)


@settings(deadline=None)
@given(st.text(max_size=5), st.floats(5, 100), st.floats(0.5, 3))
def test_the_same_seed_gives_the_same_faults(seed: str, seconds: float, gap: float) -> None:
    first, second = (steps_of(seed, seconds, gap) for _ in range(2))
    assert first == second
    assert all(0 <= step.at <= seconds and 0 <= step.victim < 1 for step in first)


@settings(deadline=None)
@given(st.text(max_size=5))
def test_nodes_are_hit_one_at_a_time(seed: str) -> None:
    hits = [step for step in steps_of(seed, 200, 1) if step.fault in NODES]
    for one, two in itertools.pairwise(hits):
        assert two.at - (one.at + one.seconds) > REST - 0.1


def test_another_seed_gives_other_faults_and_every_kind_comes() -> None:
    one, two = (steps_of(seed, 100, 1) for seed in ("1", "2"))
    assert one != two
    assert {step.fault for step in one} == {*FAULTS, *NODES}


@pytest.mark.parametrize("kind", TARGETS.values(), ids=TARGETS)
def test_every_fault_of_a_target_can_be_done_and_moves_and_prefetching_are_hit_on_all(
    kind: Callable[[Path], Target], tmp_path: Path
) -> None:
    target = kind(tmp_path)
    nemesis = Nemesis(target, None, None, "queue")  # type: ignore[arg-type]
    names = [*nemesis.faults(), *nemesis.node_faults()]
    assert all(callable(getattr(Faults, name, None)) for name in names)
    assert {"kill_prefetcher", "kill_mover", "shard_away", "purge_huge", "skew_clock"} <= set(names)
