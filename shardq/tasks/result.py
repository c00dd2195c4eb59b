"""The result of a task that was sent: waited for, looked at, cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec

from shardq.core.settings import check_number
from shardq.errors import InvalidSetting
from shardq.tasks.arguments import Arguments
from shardq.tasks.calling import check_wait
from shardq.tasks.entries import Decided, Entry, split_step
from shardq.tasks.errors import ResultMissing, ResultTimeout, TaskCancelled, TaskFailed
from shardq.tasks.plans import Plan
from shardq.tasks.task_client import TaskClient, cut

__all__ = ["Result", "decoded", "timed_out"]

T_co = TypeVar("T_co", covariant=True)
TaskState = Literal["waiting", "running", "done", "failed", "cancelled", "missing"]

SURE_SECONDS = 1.0
"""After which a waiter also asks whether the task is still in its queue, and between two such reads."""

LONGEST_WAIT = 366 * 86_400.0


class Result(Generic[T_co]):
    """The result of one task, which :meth:`Task.send` returns; or that of an id, by :meth:`Task.result`.

    ``result.get()`` waits in a thread, ``await result`` on an event loop. If the unique key of the task was
    taken, it is the result of the task that has the key.
    """

    def __init__(
        self,
        task_client: TaskClient,
        identity: str,
        arguments: Arguments | None,
        keep: float,
    ) -> None:
        self.id = identity
        self._task_client, self._arguments, self._keep = task_client, arguments, keep

    def get(self, *, timeout: float | None = None) -> T_co:
        """Wait for the task to end, and return the result of its function, of the type that the function declares.

        Waits for ``timeout`` seconds at most. Raises ResultTimeout; TaskFailed with the failure; TaskCancelled;
        ResultMissing when there is none and none will come; ResultRejected for a value of another type. In a task it
        raises WaitRejected if it would wait without a timeout, and ResultTimeout when the worker is stopping.
        """
        return self._value(self._awaited(timeout))

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait for the task to end, for ``timeout`` seconds at most. Errors as in :meth:`get`, also of the task."""
        self._checked(self._awaited(timeout))

    def __await__(self) -> Generator[Any, None, T_co]:
        """Wait on an event loop, as long as it takes: ``asyncio.timeout`` bounds it. Errors as in :meth:`get`."""
        return self._wait().__await__()

    @property
    def state(self) -> TaskState:
        """The state of the task; "missing" when it is not in its queue and has no result.

        It is "running" while its function runs. One that a worker holds for later is "waiting" again after a second.
        """
        if (entry := self._entry()) is not None:
            return entry.state
        message = self._task_client.find(self.id)
        if message is None:
            if may_be_sent(self._task_client, self.id):
                return "waiting"
            message = self._task_client.find(self.id)  # it was sent meanwhile
        if message is None:
            entry = self._entry()
            return "missing" if entry is None else entry.state
        return "running" if self._task_client.running([message]) else "waiting"

    def progress(self) -> Any:
        """Return the last progress that the task noted; None if it noted none."""
        found = self._task_client.results.progress(self.id)
        return None if found is None else msgspec.msgpack.decode(found)

    def cancel(self) -> bool:
        """Cancel the task, unless it has ended; True when it is cancelled, now or before.

        One that waits does not run. One that runs finds out: see :meth:`CurrentTask.check`; an async function is
        cancelled within a second, or a twentieth of the time that it has run. The values that it returns after that
        are dropped. A task without a result (``keep_result=0``) can be cancelled only while it waits. Can be repeated,
        and has to be after an error.
        """
        results = self._task_client.results
        if "#" in self.id:
            raise InvalidSetting(
                f"{self.id} is a step: cancel its workflow, whose id is the part before the first #"
            )
        if self._keep:
            if self.state in ("done", "failed", "missing"):
                return False
            results.decide([Decided(self.id, Entry("cancelled"), self._keep)])
            entry = results.read(self.id)
            if entry is None or entry.state != "cancelled":
                return False
        elif self.state != "waiting":
            return False
        return self._task_client.remove(self.id) or bool(self._keep)

    def forget(self) -> None:
        """Remove the result, and the progress, before they expire."""
        self._task_client.results.forget(self.id)

    async def ended(self) -> None:
        """Wait on an event loop for the task to end, without its value. Errors as in :meth:`get`, also of the task."""
        self._checked(await self._ended())

    async def _wait(self) -> T_co:
        return self._value(await self._ended())

    async def _ended(self) -> Entry:
        wait = _Wait(None)
        while (entry := await asyncio.to_thread(wait.read, self._read)) is None:
            check_wait(f"task {self.id}", bounded=False)
            await asyncio.sleep(wait.longest)
        return entry

    def _read(self, sure: bool) -> Entry | None:
        """Return the entry, if there is one. Raises ResultMissing when it is ``sure`` that none will come."""
        if not self._keep:
            raise ResultMissing(f"task {self.id} has no result: its option keep_result is 0")
        entry = self._entry()
        if entry is not None or not sure or self.state != "missing":
            return entry
        remedy = "; retry its workflow" if "#" in self.id else ""
        raise ResultMissing(
            f"task {self.id} has no result and is no longer in its queue: its result was kept for {self._keep:g} "
            f"seconds, or it was removed, has expired, became a dead letter or blocks its group (`shardq peek` shows "
            f"those){remedy}"
        )

    def _awaited(self, timeout: float | None) -> Entry:
        wait = _Wait(timeout)
        while (entry := wait.read(self._read)) is None:
            wait.check(self.id)
            check_wait(f"task {self.id}", bounded=timeout is not None)
            before = time.monotonic()
            self._task_client.results.wait(wait.longest)
            time.sleep(max(0.0, wait.shortest - (time.monotonic() - before)))
        return entry

    def _entry(self) -> Entry | None:
        return self._task_client.results.outcomes([self.id]).get(self.id)

    def _value(self, entry: Entry) -> T_co:
        if self._checked(entry).apart:
            raise ResultMissing(
                f"{self.id} is a part of a large group: ask the result of its workflow for values()"
            )
        return decoded(self._arguments, self._task_client.results.value(self.id, entry))  # type: ignore[no-any-return]

    def _checked(self, entry: Entry) -> Entry:
        if entry.state == "cancelled":
            raise TaskCancelled(f"task {self.id} was cancelled")
        if entry.state == "failed":
            call = f"{entry.failure.call}, " if entry.failure and entry.failure.call else ""
            raise TaskFailed(f"task {call}{self.id}, failed: {entry.failure}", entry.failure)
        return entry

    def __repr__(self) -> str:
        return f"<Result {self.id}>"


def decoded(arguments: Arguments | None, value: bytes) -> Any:
    """Return the result of a task, of the type that it declares, if the task is known. Raises ResultRejected."""
    return msgspec.msgpack.decode(value) if arguments is None else arguments.decode_result(value)


def timed_out(kind: str, identity: str, timeout: float | None) -> ResultTimeout:
    """Return the error of a caller that has waited for so long."""
    within = "" if timeout is None else f" within {timeout:g} seconds"
    return ResultTimeout(
        f"{kind} {identity} has not ended{within}: ask again later, and see that a worker runs"
    )


class _Wait:
    """How long a waiter sleeps between its reads: a part of the time that it has waited already."""

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None:
            check_number("timeout", timeout, 0.0, LONGEST_WAIT)
        self._began, self._timeout = time.monotonic(), timeout
        self._sure_after = SURE_SECONDS

    @property
    def waited(self) -> float:
        return time.monotonic() - self._began

    def read(self, read: Callable[[bool], Entry | None]) -> Entry | None:
        """Read once, now and then surely: that may cost many requests, and takes a tenth of the time at most."""
        sure = self._is_sure(began := self.waited)
        entry = read(sure)
        if sure:
            self._sure_after = self.waited + max(SURE_SECONDS, 9 * (self.waited - began))
        return entry

    def _is_sure(self, waited: float) -> bool:
        if self._timeout is not None and waited >= self._timeout:
            return waited >= SURE_SECONDS or self._timeout == 0
        return waited >= self._sure_after

    @property
    def shortest(self) -> float:
        """Also while results of other tasks come all the time."""
        return self._bounded(min(0.25, max(0.002, self.waited / 50)))

    @property
    def longest(self) -> float:
        return self._bounded(min(1.0, max(0.01, self.waited / 5)))

    def check(self, task: str) -> None:
        if self._timeout is not None and self.waited >= self._timeout:
            raise timed_out("task", task, self._timeout)

    def _bounded(self, seconds: float) -> float:
        return seconds if self._timeout is None else max(0.0, min(seconds, self._timeout - self.waited))


def may_be_sent(task_client: TaskClient, step: str) -> bool:
    """Return True while a step that is not in its queue and has not ended, or the steps of a bucket, may be sent.

    Also while something is under way that a task, or a step, has returned in place of a value.

    The worker that ends a step sends the next steps before the message of the step leaves its queue. So a workflow
    that continues has a message in a queue at every moment. It is looked for in the order of the workflow: a message
    that moves on meanwhile is met further on.

    A caller that gets False reads the step and its entry once more.
    """
    if "#" not in step:  # it may have returned a workflow
        return _has_open_steps(task_client, step)
    workflow, number = split_step(step)
    if (plan := task_client.plan(workflow)) is None:  # it has not begun, or has expired
        return task_client.find(step.partition("#")[0]) is not None or task_client.plan(workflow) is not None
    if number >= len(plan.steps):
        return False
    if _comes(task_client, workflow, plan, plan.steps[number].after):
        return True
    return task_client.find(step) is not None or _has_open_steps(task_client, step)


def _comes(task_client: TaskClient, workflow: str, plan: Plan, after: Sequence[int]) -> bool:
    """Return True while something is under way that comes before the steps of a workflow that wait for these."""
    if "#" in workflow:
        outer, number = split_step(workflow)
        around = task_client.plan(outer)
        if (
            around is not None
            and number < len(around.steps)  # ids are forged
            and _comes(task_client, outer, around, around.steps[number].after)
        ):
            return True
    return task_client.find(workflow) is not None or _any_open(task_client, workflow, plan, after)


def _any_open(task_client: TaskClient, workflow: str, plan: Plan, numbers: Sequence[int]) -> bool:
    """Return True while one of these steps is in its queue, or one before them, or one that such a step is made of.

    First all are looked for together. Messages that move on meanwhile are met by the second search, one step after the
    other. A step that failed may end the steps after it, also where errors are collected, so that entries are not
    enough. Its message is in its queue until all that follows from it is sent.
    """
    if not numbers:
        return False
    if task_client.find_steps(workflow, plan, numbers):  # it is, most of the time
        return True
    line = _with_those_before(plan, numbers)
    entered = task_client.entered_steps(workflow, line)
    if any(task_client.find_steps(workflow, plan, some) for some in cut(line)):
        return True
    return any(
        (number not in entered and task_client.find_steps(workflow, plan, [number]))
        or _has_open_steps(task_client, f"{workflow}#{number}")
        for number in line
    )


def _with_those_before(plan: Plan, numbers: Sequence[int]) -> list[int]:
    """Return these steps and all that they wait for, each behind those before it."""
    found, left = set[int](), list(numbers)
    while left:
        number = left.pop()
        if number not in found:
            found.add(number)
            left += plan.steps[number].after
    return sorted(found)  # a step has a higher number than those before it


def _has_open_steps(task_client: TaskClient, bucket: str) -> bool:
    plan = task_client.plan(bucket)
    return plan is not None and _any_open(task_client, bucket, plan, plan.ends)
