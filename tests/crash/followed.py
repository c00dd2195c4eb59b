"""Clients of the fault campaign on one queue, for tests that break something around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import shardq
from tools.faults.assignment import Assignment
from tools.faults.history import Phase, read_history
from tools.faults.rules import Promise
from tools.faults.stage import Stage
from tools.faults.verdict import judge
from tools.faults.waiting import wait_until_empty

__all__ = ["followed", "succeeded"]

ENDLESS = 1_000_000  # messages: producers send until they are killed
PATIENCE = 150.0  # seconds


@contextmanager
def followed(
    queue: shardq.Queue, url: str, folder: Path, *, lease: float, rate: float, seed: int = 0
) -> Iterator[Stage]:
    """Keep two producers and three workers at work; at the end, check that every promise held for every message.

    ``rate`` is of each producer, in messages a second. Clients that end meanwhile are replaced by the caller.
    """
    template = Assignment(
        role="", name="", seed=0, log="", dial="", url=url, queue=queue.name, rate=rate, lease=lease
    )
    stage = Stage(folder, template, str(seed))
    try:
        for number in (1, 2):
            stage.start("produce", f"p{number}", messages=ENDLESS)
        for number in (1, 2, 3):
            stage.start("work", f"w{number}")
        stage.wait_until_at_work(PATIENCE)
        yield stage
        stage.kill("produce")
        stage.hurry()
        assert wait_until_empty(queue, PATIENCE) == []
        assert stage.deaths() == []
    finally:
        stage.end()
    verdict = judge(read_history(stage.logs), Promise(lease))
    assert verdict.offences == (), verdict.figures


def succeeded(stage: Stage, since: int = 0) -> Counter[str]:
    """Count the messages of the successful operations of each kind since a monotonic time in nanoseconds."""
    found: Counter[str] = Counter()
    for event in read_history(stage.logs):
        if event.phase is Phase.OK and event.at > since:
            found[event.verb] += len(event.bodies)
    return +found
