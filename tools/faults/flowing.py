"""Clients of workflows: they send them and look whether they have ended, or run their steps."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import shardq
from shardq.base.clock import from_datetime
from shardq.tasks import CurrentTask, Middleware, Tasks, TaskWorker, WorkflowResult, plans, workflow
from shardq.tasks.entries import result_id
from shardq.tasks.in_flight import TaskUnit
from shardq.worker.threads import ThreadPool

from .flows import KINDS, make_tasks, make_workflow
from .history import Delivery, Phase
from .recorder import Recorder
from .role import Role

__all__ = ["Ordering", "Running"]

AT_THE_END = 4  # workflows of each sender, when the faults are over
SMALL_BUCKET = 3  # steps, so that a group of a dozen is a tree, and those of a bucket are sent in a bundle
THREADS = 3
SPOILED = 0.05  # of the attempts fail and are tried again


class Ordering(Role):
    """Sends one workflow after the other, and looks at one of those before."""

    def run(self) -> None:
        workflow.BUCKET_STEPS = plans.MIN_ASSIGNED = SMALL_BUCKET
        self._app, self._open = make_tasks(), list[WorkflowResult]()
        self._app.bind(self.client)
        number, last = self.assignment.first, self.assignment.first + self.assignment.messages
        while number < last and not self.stopped.is_set():
            self._send(number)
            self._look()
            number += 1
            if self.dial.hurry:
                last = min(last, number + AT_THE_END)
            self.pause(self.dice.uniform(0.5, 1.5) / self.assignment.rate)

    def _send(self, number: int) -> None:
        name = f"{KINDS[number % len(KINDS)]}-{self.assignment.name.partition('.')[0]}-{number}"
        workflow = make_workflow(self._app, name, self.assignment.queue)
        self.record.invoke("order", [name])
        try:
            sent = workflow.send(name=name)
        except shardq.ShardqError as error:
            sure = isinstance(error, shardq.StoreUnavailable)
            self.record.outcome("order", Phase.FAILED if sure else Phase.UNKNOWN, [name], note=error)
        else:
            self._open.append(sent)
            self.record.outcome("order", Phase.OK, [name], note=sent.id)

    def _look(self) -> None:
        if not self._open:
            return
        place = self.dice.randrange(len(self._open))
        try:
            state = self._open[place].state
        except shardq.ShardqError:
            return
        if state == "done":
            self.record.outcome("see-end", Phase.OK, [self._open.pop(place).id])


class Running(Role):
    """A worker of tasks. One that a full disk has ended is started again, as whoever supervises it does."""

    def run(self) -> None:
        plans.MIN_ASSIGNED = SMALL_BUCKET
        self.record.invoke("seek-step")
        app = make_tasks([_Noted(self.record, self.dice)])
        self.patiently(lambda: self._work(app))

    def _work(self, app: Tasks) -> None:
        worker = _NotedWorker(
            app, self.client, queues=[self.assignment.queue], threads=THREADS, batch=20, retry_delay=0.2
        )
        worker.record = self.record
        threading.Thread(target=self._stop, args=(worker,), daemon=True).start()
        worker.run()

    def _stop(self, worker: TaskWorker) -> None:
        self.stopped.wait()
        worker.stop()


class _NotedWorker(TaskWorker):
    """Writes down what it has received before it looks at what stands of it."""

    record: Recorder

    def _begin(self, units: Sequence[TaskUnit], threads: ThreadPool[TaskUnit]) -> None:
        messages = [message for unit in units for message in unit.attempt.batch]
        taken = [
            Delivery(result_id(each), each.id, each.priority, from_datetime(each.due), each.deliveries)
            for each in messages
        ]
        self.record.outcome("take-step", Phase.OK, deliveries=taken)
        super()._begin(units, threads)

    def _make_consumer(self) -> shardq.Consumer:
        consumer = super()._make_consumer()
        receive = consumer.receive

        def noted(limit: int = 1, *, wait: float = 0.0) -> shardq.Batch:
            batch = receive(limit, wait=wait)
            self.record.outcome("seek-step", Phase.OK)
            return batch

        consumer.receive = noted  # type: ignore[method-assign]
        return consumer


class _Noted(Middleware):
    """Writes down each run of a step, and lets some fail."""

    def __init__(self, record: Recorder, dice: random.Random) -> None:
        self._record, self._dice = record, dice

    def before(self, task: CurrentTask) -> None:
        if self._dice.random() < SPOILED:
            raise RuntimeError("spoiled")
        self._record.outcome("run-step", Phase.OK, [task.id])
