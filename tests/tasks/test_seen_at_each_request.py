"""What somebody sees of a workflow who looks at it before each request of a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardq
from shardq.base.clock import Clock
from shardq.storage.opening import open_store
from shardq.tasks import Tasks, TaskWorker, Workflow, chain, chord, group
from shardq.tasks.advancing import start_workflow
from shardq.testing import WrappedStore
from tests.tasks.sums import Sums


class Watched(WrappedStore):
    """Looks before each request."""

    look: Callable[[], object] = staticmethod(lambda: None)

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.look()
        return super().call(method, do, *args, **kwargs)


class Watching(Sums):
    """Its calls may fail at the start of a part of a group, in the middle, or at the end."""

    def __init__(self, client: shardq.Client) -> None:
        super().__init__(client)

        @self.tasks.task
        def count(parts: list[Any]) -> int:
            return len(parts)

        @self.tasks.task
        def instead(failing: int) -> Workflow:
            return self.collecting(failing)

        self.count, self.instead = count, instead

    def collecting(self, failing: int) -> Workflow:
        calls = [self.add.signature(1, 1), self.add.then(1), self.add.then(1)]
        calls[failing] = self.fail.then() if failing else self.fail.signature(1)
        return chord([self.add.signature(1, 2), chain(*calls)], self.count.then(), errors="collect")

    def workflow(self, kind: str, failing: int) -> Workflow:
        if kind == "within":
            return chain(self.instead.signature(failing), self.add.then(0))
        if kind == "before":
            return chain(self.collecting(failing), group(self.add.then(0), self.add.then(1)))
        return self.collecting(failing)

    def stopping(self, failing: int) -> Workflow:
        calls = [self.add.signature(1, 1), *(self.add.then(1) for _ in range(2))]
        calls[failing] = self.fail.then() if failing else self.fail.signature(1)
        return chain(*calls)


def seen_during_work(watched: Watched, result: Any) -> set[str]:
    """Work until nothing is left; returns the states that the result had before each request."""
    seen = set[str]()
    with shardq.Client(watched, retry_seconds=0) as working:
        watched.look = lambda: seen.add(result.state)
        TaskWorker(Watching(working).tasks, working, threads=0, idle_exit=0).run()
        watched.look = lambda: None
    return seen


@pytest.mark.long
@pytest.mark.parametrize("failing", range(3))
@pytest.mark.parametrize("kind", ["alone", "before", "within", "instead"])
def test_a_workflow_whose_errors_are_collected_is_never_missing_before_it_has_ended(
    url: str, clock: Clock, client: shardq.Client, kind: str, failing: int
) -> None:
    app, watched = Watching(client), Watched(open_store(url, clock))
    result: Any = app.instead.send(failing) if kind == "instead" else app.workflow(kind, failing).send()
    assert "missing" not in seen_during_work(watched, result)
    assert result.state == "done"


@pytest.mark.parametrize("failing", range(2))
def test_a_workflow_that_fails_is_never_missing_before_it_has_failed(
    url: str, clock: Clock, client: shardq.Client, failing: int
) -> None:
    app, watched = Watching(client), Watched(open_store(url, clock))
    result = app.stopping(failing).send()
    assert "missing" not in seen_during_work(watched, result)
    assert result.state == "failed"


@pytest.mark.long
def test_a_chain_of_any_length_can_be_looked_at(tasks: Tasks) -> None:
    @tasks.task
    def same(number: int) -> int:
        return number

    result = chain(same.signature(7), *(same.then() for _ in range(1_500))).send()
    with tasks.task_client.client.queue("tasks").consumer() as consumer:
        (message,) = consumer.receive(1)
        start_workflow(tasks.task_client, message)
        message.ack()
    states = [result.state]
    tasks.task_client.client.queue("tasks").purge()
    assert [*states, result.state] == ["running", "missing"]
