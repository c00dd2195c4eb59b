"""Processes that keep the history of one store, whose time is moved by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shardq
from shardq.history import History, Sampler, read_history
from shardq.history.sampler import AFTER_REPORTS_SECONDS
from shardq.metrics import Metrics
from shardq.storage.opening import open_store
from shardq.testing import FaultPlan, FaultyStore, ManualClock, ManualTimer
from tests.any_store import any_url, connect_any, name
from tests.quick_store import url

__all__ = ["any_url", "connect_any", "name", "url"]


class Process:
    """A process with a client that is measured, and a sampler."""

    def __init__(self, url: str, clock: ManualClock, timer: ManualTimer, plan: FaultPlan) -> None:
        self.store = FaultyStore(open_store(url, clock), plan)
        self.metrics = Metrics()
        self.client = shardq.Client(self.store, observer=self.metrics, retry_seconds=0)
        self.sampler = Sampler(self.client, measures=self.metrics.measures, timer=timer)

    def kill(self) -> None:
        """End without a chance to release anything."""
        self.client.close()


class World:
    """Some processes, and the time that passes for all of them."""

    def __init__(self, url: str) -> None:
        self.url, self.clock, self.timer = url, ManualClock(), ManualTimer()
        self._opened: list[Process] = []

    def process(self, plan: FaultPlan | None = None) -> Process:
        """Start a process."""
        self._opened.append(Process(self.url, self.clock, self.timer, plan or FaultPlan()))
        return self._opened[-1]

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.timer.advance(seconds)

    def go_on(self, *samplers: Sampler, steps: int = 1, seconds: float = 15) -> None:
        """Let time pass, and take steps, again and again. One that becomes the sampler begins when it asks to."""
        for _ in range(steps):
            self.pass_time(seconds)
            pauses = [sampler.step() for sampler in samplers]
            for sampler, pause in zip(samplers, pauses, strict=True):
                if pause == AFTER_REPORTS_SECONDS:
                    self.pass_time(pause)
                    sampler.step()

    def history(self, queue: str | None = "orders", *, since: float = 600, points: int = 40) -> History:
        """Read a history by a client of its own."""
        with shardq.connect(self.url, clock=self.clock) as client:
            return read_history(client, queue, since=since, points=points)

    def close(self) -> None:
        """End all processes."""
        for each in self._opened:
            each.client.close()


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    world.close()


@pytest.fixture
def process(world: World) -> Process:
    return world.process()


@pytest.fixture
def orders(process: Process) -> shardq.Queue:
    return process.client.create_queue("orders", shards=1, time_shards=1, max_deliveries=None)
