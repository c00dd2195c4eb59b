"""What statements on groups read beside an old snapshot, which keeps the dead rows of all messages that have passed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from shardq.storage.requests import Append, Span
from tests.postgresql.test_postgresql_reads import World, old_snapshot, world

__all__ = ["world"]

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(900)]

FEW, MANY = 1_000, 4_000  # messages that have passed
TIMES = 9  # that each request is measured
SPARE = 24  # pages; the messages of the last seconds are crossed, and an index may get a level more


class Costs:
    """The pages that the requests of one message read."""

    def __init__(self, world: World) -> None:
        self.world, self.pages = world, {"append": 0, "claim": 0, "ack": 0}

    def pass_one(self) -> None:
        """Send a message of one group, and take and ack it."""
        world, spans = self.world, list[Span]()
        bundle = world.make(1, group="g")
        self._note("append", lambda: world.store.append(Append(world.grouped, (bundle,))))
        self._note("claim", lambda: spans.extend(world.take(1, world.grouped)))
        self._note("ack", lambda: world.ack(spans, world.grouped))
        world.clock.advance(0.1)

    def _note(self, request: str, run: Callable[[], object]) -> None:
        self.world.plans.pages = 0
        run()
        self.pages[request] = self.world.plans.pages


def pass_many(world: World, count: int) -> dict[str, int]:
    """Let messages pass, and return how many pages the last ones have read: the median."""
    costs, last = Costs(world), list[dict[str, int]]()
    for _ in range(count):
        costs.pass_one()
        last = [*last[1 - TIMES :], dict(costs.pages)]
    return {request: _median([each[request] for each in last]) for request in costs.pages}


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]


def test_they_read_no_more_with_each_message_that_has_passed(world: World) -> None:
    with old_snapshot(world):
        few = pass_many(world, FEW)
        many = pass_many(world, MANY - FEW)
    assert all(few.values()), "the server reports what it reads"
    grown = {request: (few[request], many[request]) for request in few}
    assert {request: pages for request, pages in grown.items() if pages[1] > 1.5 * pages[0] + SPARE} == {}
