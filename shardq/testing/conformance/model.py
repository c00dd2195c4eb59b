"""Contract: a store does what a dict does, whatever the history of calls."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from shardq.testing.harness import StoreHarness
from shardq.testing.state_machine import state_machine_for

__all__ = ["ModelContract"]


class ModelContract:
    """The state machine, run on the store."""

    def test_a_store_agrees_with_the_model(self, harness: StoreHarness) -> None:
        run_state_machine_as_test(
            state_machine_for(lambda: harness),
            settings=settings(
                max_examples=harness.examples,
                stateful_step_count=40,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
