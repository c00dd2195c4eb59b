"""What has to hold of workflows when a worker dies between any two of its requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardq.client import Client
from shardq.storage.store import Store
from shardq.tasks import Tasks, TaskWorker, Workflow, chain, chord, group, plans, workflow
from tests.kills.killers import Killer
from tests.kills.scene import TRIES, Scene

__all__ = ["KilledWorkflows"]

MOST = 3_000  # requests that a worker may make for a workflow


class Sums:
    """An app whose steps note what they ran in a file, as the process that runs them may die."""

    def __init__(self, client: Client, queue: str, file: Path) -> None:
        self.tasks, self.queue, self.file = Tasks(), queue, file
        self.tasks.bind(client)

        def note(text: str) -> None:
            with file.open("ab", buffering=0) as log:
                log.write(f"{text}\n".encode())

        @self.tasks.task(queue=queue)
        def add(first: int, second: int) -> int:
            note(f"{first}+{second}")
            return first + second

        @self.tasks.task(queue=queue)
        def total(numbers: list[int]) -> int:
            note(f"total {numbers}")
            return sum(numbers)

        self.add, self.total = add, total

    def called_back(self) -> int:
        """How often the callback was run, by all workers."""
        return self.file.read_text().count("total") if self.file.exists() else 0

    def drain(self) -> None:
        TaskWorker(
            self.tasks, self.tasks.task_client.client, queues=[self.queue], threads=0, idle_exit=0
        ).run()


def nested(app: Sums) -> Workflow:
    """A chain in a chord in a chain, and two that follow it."""
    inner = chord(
        [app.add.signature(1, 1), chain(app.add.signature(2, 2), app.add.then(3))], app.total.then()
    )
    return chain(app.add.signature(0, 1), inner, group(app.add.then(10), app.add.then(20)))


def in_buckets(app: Sums) -> Workflow:
    """A chord of three buckets, as the test cuts them."""
    return chord([app.add.signature(number, 0) for number in range(5)], app.total.then())


FLOWS: dict[Callable[[Sums], Workflow], tuple[object, set[str]]] = {
    nested: ([19, 29], {"0+1", "1+1", "2+2", "4+3", "total [2, 7]", "9+10", "9+20"}),
    in_buckets: (10, {*(f"{number}+0" for number in range(5)), "total [0, 1, 2, 3, 4]"}),
}


@pytest.mark.timeout(600)
class KilledWorkflows:
    """A store's tests provide the fixture ``killer``."""

    @pytest.fixture
    def flows(self, killer: Killer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
        monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)
        monkeypatch.setattr(plans, "MIN_ASSIGNED", 2)
        scene = Scene(killer)
        yield scene
        scene.close()

    @pytest.mark.long
    @pytest.mark.parametrize("flow", FLOWS)
    def test_a_workflow_whose_worker_dies_ends_and_nothing_that_was_decided_runs_again(
        self, flows: Scene, flow: Callable[[Sums], Workflow], tmp_path: Path
    ) -> None:
        value, steps = FLOWS[flow]
        for requests in flows.killer.every_ninth(MOST):
            file, name = tmp_path / str(requests), flows.new_name()
            flows.queues.append(f"{name}.dead")
            Client(flows.healthy).create_queue(name, shards=1, time_shards=1, visibility_timeout=3_600)
            sent = flow(Sums(Client(flows.healthy), name, file)).send()

            def act(store: Store, name: str = name, file: Path = file) -> None:
                Sums(Client(store), name, file).drain()

            killed = flows.killer.run(act, requests)
            heir = flows.harness.open()
            self._go_on(flows, Sums(Client(heir), name, file), sent.id, value)
            heir.close()
            ran = Counter(file.read_text().splitlines())
            assert set(ran) == steps
            assert max(ran.values()) <= (2 if killed else 1)
            if not killed:
                return
        pytest.fail("the workflow has no end")

    def _go_on(self, scene: Scene, app: Sums, workflow: str, value: object) -> None:
        """Another worker ends the workflow, and does not run the callback again if that was decided."""
        result, queue = app.tasks.workflow(workflow), app.tasks.task_client.client.queue(app.queue)
        scene.end_leases(queue)
        decided = any(step.task == "total" and step.state == "done" for step in result.steps())
        before = app.called_back()
        for _ in range(TRIES):
            app.drain()
            if result.state == "done" and not queue.peek(1):
                break
            scene.harness.advance(0.5 * scene.harness.time_scale)
        assert result.get(timeout=0) == value
        assert not queue.peek(1), "a message is left"
        after = app.called_back()
        assert after == before if decided else after - before == 1
