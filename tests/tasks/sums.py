"""An app that adds, for the tests of workflows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import shardq
from shardq.tasks import Tasks, TaskWorker, Workflow, chain, group

__all__ = ["StopsAfterOne", "Sums"]


class StopsAfterOne(shardq.Hooks):
    """Stops a worker, whose client has these hooks, when the first message is acked."""

    worker: TaskWorker

    def after_ack(self, queue: str, messages: Sequence[shardq.Message]) -> None:
        self.worker.stop()


class Sums:
    """An app that adds, and notes what it ran."""

    def __init__(self, client: shardq.Client) -> None:
        self.tasks = Tasks()
        self.tasks.bind(client)
        self.ran = Counter[str]()
        task = self.tasks.task(retry=2)

        @task
        def add(first: int, second: int) -> int:
            self.ran[f"{first}+{second}"] += 1
            return first + second

        @task
        async def total(numbers: list[int]) -> int:
            self.ran[f"total {numbers}"] += 1
            return sum(numbers)

        @self.tasks.task(queue="others", retry=1)
        def fail(number: int) -> int:
            self.ran["fail"] += 1
            raise ValueError(f"not {number}")

        self.add, self.total, self.fail = add, total, fail

    def squares(self) -> Workflow:
        """A chain of a group, one that takes its list, and a group that both take its value."""
        return chain(
            group(*(self.add.signature(number, number) for number in range(4))),
            self.total.then(),
            group(self.add.then(second=1), chain(self.add.then(2), self.add.then(3))),
        )
