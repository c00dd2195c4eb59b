"""Steps that a worker cannot send, however often it tries: they have failed, and all else goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import shardq
from shardq.base.clock import Clock
from shardq.storage.opening import open_store
from shardq.storage.requests import Append
from shardq.storage.store import Capabilities
from shardq.storage.wrapped_store import WrappedStore
from shardq.tasks import TaskFailed, TaskWorker, Workflow, chain, chord, group, plans
from tests.tasks.sums import Sums


class WithoutGroups(WrappedStore):
    """A store that keeps the order of no groups, as is seen after the workflow was sent."""

    is_seen = False

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self.inner.capabilities, groups=not self.is_seen)

    def append(self, request: Append) -> Any:
        assert not request.shard.is_grouped
        return super().append(request)


class Echoing(Sums):
    def __init__(self, client: shardq.Client) -> None:
        super().__init__(client)

        @self.tasks.task
        def echo(text: str) -> str:
            return text

        self.echo = echo


def _grouped_first(sums: Echoing) -> Workflow:
    return chain(sums.add.options(group="g").signature(1, 2), sums.add.then(3))


def _grouped_later(sums: Echoing) -> Workflow:
    return chain(sums.add.signature(1, 2), sums.add.options(group="g").then(3), sums.add.then(4))


def _large_first(sums: Echoing) -> Workflow:
    return group(sums.add.signature(1, 2), sums.echo.options(queue="small").signature("x" * 5_000))


def _many_large_first(sums: Echoing) -> Workflow:
    large = [sums.echo.options(queue="small").signature("x" * 5_000) for _ in range(4)]
    return group(sums.add.signature(1, 2), *large)


def _large_later(sums: Echoing) -> Workflow:
    return chain(sums.add.signature(1, 2), sums.echo.options(queue="small").signature("x" * 5_000))


def _large_behind_a_group(sums: Echoing) -> Workflow:
    parts = [sums.add.signature(each, 0) for each in range(3)]
    return chord(parts, sums.echo.options(queue="small").signature("x" * 5_000))


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (_grouped_first, "group"),
        (_grouped_later, "group"),
        (_large_first, "bytes"),
        (_many_large_first, "bytes"),
        (_large_later, "bytes"),
        (_large_behind_a_group, "bytes"),
    ],
)
def test_whoever_waits_is_told_why_and_other_tasks_go_on(
    url: str,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Any], Workflow],
    text: str,
    threads: int,
) -> None:
    monkeypatch.setattr(plans, "MIN_ASSIGNED", 2)
    store = WithoutGroups(open_store(url, clock))
    with shardq.Client(store) as client:
        small = client.create_queue("small", max_message_bytes=1_000)
        sums = Echoing(client)
        result, other = make(sums).send(), sums.add.send(20, 3)
        store.is_seen = True
        for _ in range(2):
            TaskWorker(sums.tasks, client, threads=threads, idle_exit=0).run()
        assert other.get(timeout=0) == 23
        with pytest.raises(TaskFailed, match=text):
            result.get(timeout=0)
        states = [result.state]
        if text == "bytes":
            small.alter(max_message_bytes=100_000)
            assert result.retry()
            for _ in range(2):
                TaskWorker(sums.tasks, client, threads=threads, idle_exit=0, queues=["tasks", "small"]).run()
            states.append(result.state)
        assert states == ["failed", "done"][: len(states)]
