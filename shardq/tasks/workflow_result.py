"""The result of a workflow that was sent: waited for, looked at, cancelled; by its id also in another program."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from shardq.base.texts import shown
from shardq.core.settings import check_number
from shardq.errors import InvalidReceipt, InvalidSetting
from shardq.storage.requests import EntryState
from shardq.tasks.arguments import Arguments
from shardq.tasks.calling import check_wait, is_in_worker
from shardq.tasks.entries import MOST_RUNS, Decided, Entry, check_task_id, in_run, run_of, step_id
from shardq.tasks.errors import ResultMissing, ResultTimeout, TaskFailed
from shardq.tasks.plans import Plan
from shardq.tasks.result import LONGEST_WAIT, Result, TaskState, decoded, timed_out
from shardq.tasks.steps import Collected, gather, read_collected, unblocks
from shardq.tasks.task_client import TaskClient
from shardq.tasks.views import TaskView, views_of_steps

__all__ = ["NothingSent", "WorkflowResult"]

_POLL_SECONDS = 1.0
_TELLING: tuple[TaskState, ...] = ("failed", "cancelled", "missing")


class WorkflowResult:
    """The result of a workflow: that of its last step, or a list of those of several.

    :meth:`Workflow.send` returns it; :meth:`Tasks.workflow` makes it of an id, in any program. ``id`` is that of the
    message that begins the workflow.
    """

    def __init__(
        self,
        task_client: TaskClient,
        identity: str,
        arguments: Mapping[str, Arguments],
        plan: Plan | None = None,
    ) -> None:
        self.id, self._task_client, self._arguments, self._known = (
            _checked(identity),
            task_client,
            arguments,
            plan,
        )

    @property
    def results(self) -> tuple[Result[Any], ...]:
        """The results of its ends, the steps that none waits for. Raises ResultMissing.

        Those of a large group are its buckets, of which each has a list. :meth:`values` goes through all of them.
        """
        plan, run = self._plan(), self._run()
        return tuple(self._result(plan, run, end) for end in plan.ends)

    @property
    def state(self) -> TaskState:
        """The state of the workflow: "waiting" until a worker begins it, then "running".

        It is "failed" or "cancelled" as soon as one of its ends is. It is "missing" when nothing is known of it, or
        when one of its ends will never exist.
        """
        return self._state(self._run())

    def _state(self, run: str) -> TaskState:
        if (plan := self._found()) is None:
            return "missing"
        states = {end.state for end in self._ends(plan, run)}
        for each in _TELLING:
            if each in states:
                return each
        if states == {"done"}:
            return "done"
        message = self._task_client.find(run)
        return "running" if message is None or message.state is EntryState.IN_FLIGHT else "waiting"

    def steps(self, bucket: str | None = None) -> list[TaskView]:
        """Return the states of its steps, in their order; or those of a bucket of a large group, by its id.

        Raises ResultMissing, and InvalidReceipt for a text that is not an id.
        """
        if bucket is not None:
            check_task_id(bucket)
        views = views_of_steps(self._task_client, bucket or self._run())
        if not views:
            raise self._unknown()
        return views

    def get(self, *, timeout: float | None = None) -> Any:
        """Wait for all of it to end, for ``timeout`` seconds at most; returns the result of its end, or of its ends.

        Raises the errors of :meth:`Result.get`. The failure of a step is that of all that wait for it.
        """
        self.wait(timeout=timeout)
        values = list(self.values())
        return values if self._plan().many else values[0]

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait for all of it to end, for ``timeout`` seconds at most. Errors as in :meth:`get`."""
        if timeout is not None:
            check_number("timeout", timeout, 0.0, LONGEST_WAIT)
        until = None if timeout is None else time.monotonic() + timeout
        ends = self._ends(self._plan(), self._run())
        for each in ends:
            try:
                _wait_for(each, ends, until)
            except ResultTimeout:
                raise timed_out("workflow", self.id, timeout) from None

    def values(self) -> Iterator[Any]:
        """Return the results of its ends, one after the other, when all of it has ended.

        Only some hundreds of values are in memory at a time, so this is for groups of any size. Raises ResultMissing.
        """
        plan = self._plan()
        for found in gather(self._task_client, self._run(), plan, plan.ends):
            arguments = self._arguments.get(found.task)
            if not found.collected:
                yield decoded(arguments, found.value)
                continue
            value, failure = read_collected(found.value)
            yield Collected(None if failure else decoded(arguments, value), failure)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait on an event loop. Errors as in :meth:`get`."""
        return self._wait().__await__()

    def cancel(self) -> bool:
        """Cancel all steps that have not ended; False when all of it had ended, or is missing. Can be repeated.

        Steps that run find out as tasks do: see :meth:`Result.cancel`.
        """
        if (plan := self._found()) is None:
            return False
        run = self._run()
        if self._is_gone(plan, run):
            return False
        results, steps = (
            self._task_client.results,
            [step_id(run, step).text for step in range(len(plan.steps))],
        )
        steps += [run] if plan.replaces_task else []
        known = results.read_many(steps)  # what was done in a run before has no entry of this one
        results.decide([Decided(each, Entry("cancelled"), plan.keep) for each in steps if each not in known])
        self._task_client.remove(run)
        return any(entry.state == "cancelled" for entry in results.read_many(steps).values())

    def retry(self) -> bool:
        """Run again the steps that failed, were cancelled, went missing or were never begun; done steps stay.

        False when nothing has failed since it was retried last. Of several clients that retry it at the same time,
        each returns True, and it runs once. It continues as after a first send: ``get`` waits again, and it can be
        cancelled, and retried again. Steps of the failed run that still wait are dropped; a step that runs just now
        may be run twice. It has to be retried, and to end, within ``keep`` seconds of its begin. Raises ResultMissing
        when that has ended, or when it was cancelled before it began; send it again then; and InvalidSetting after
        9,999 times. May be repeated.
        """
        run = self._run()
        if self._state(run) not in _TELLING:
            return False
        if (plan := self._task_client.kept_plan(self.id)) is None:
            raise self._unknown()
        if run_of(run) >= MOST_RUNS:
            raise InvalidSetting(f"workflow {self.id} was retried {MOST_RUNS:,} times: send it again")
        again = in_run(run, run_of(run) + 1)
        self._task_client.retry(again)
        self._task_client.results.enter_run(again, plan.keep)
        return True

    def _is_gone(self, plan: Plan, run: str) -> bool:
        """Return True when none of its ends is still to come, and one will not: it was purged."""
        states = set[TaskState]()
        for end in self._ends(plan, run):
            states.add(end.state)
            if not states <= {"done", "missing"}:
                return False
        return "missing" in states

    async def _wait(self) -> Any:
        ends = await asyncio.to_thread(lambda: self._ends(self._plan(), self._run()))
        waiting = [asyncio.ensure_future(each.ended()) for each in ends]  # a bucket may have too many values
        try:
            await asyncio.gather(*waiting)
        finally:
            for each in waiting:
                each.cancel()
        return await asyncio.to_thread(self.get)

    def _run(self) -> str:
        """Return the id of the run that began last."""
        return in_run(self.id, self._task_client.results.last_run(self.id))

    def _result(self, plan: Plan, run: str, step: int) -> Result[Any]:
        arguments = self._arguments.get(plan.steps[step].task)
        return Result(self._task_client, step_id(run, step).text, arguments, plan.keep)

    def _ends(self, plan: Plan, run: str) -> list[_End]:
        return [_End(self._task_client, plan, end, self._result(plan, run, end)) for end in plan.ends]

    def _found(self) -> Plan | None:
        if self._known is None:
            self._known = self._task_client.planned(self.id)
        return self._known

    def _plan(self) -> Plan:
        if (plan := self._found()) is None:
            raise self._unknown()
        return plan

    def _unknown(self) -> ResultMissing:
        return ResultMissing(
            f"there is no workflow {self.id}: it began longer ago than it is kept, was removed before it began, or "
            "this is the id of something else"
        )

    def __repr__(self) -> str:
        return f"<WorkflowResult {self.id}>"


class NothingSent(WorkflowResult):
    """The result of an empty workflow that names no task, and so no store: done, and an empty list.

    Nothing is stored for it, so no other program finds its ``id``.
    """

    @property
    def state(self) -> TaskState:
        """Always "done"."""
        return "done"

    def steps(self, bucket: str | None = None) -> list[TaskView]:
        """Return no steps. Raises InvalidReceipt for a text that is not an id."""
        if bucket is not None:
            check_task_id(bucket)
        return []

    def cancel(self) -> bool:
        """Return False: it has ended."""
        return False

    def retry(self) -> bool:
        """Return False: nothing has failed."""
        return False

    def _run(self) -> str:
        return self.id


class _End:
    """An end of a workflow. A failure that is collected is a value."""

    def __init__(self, task_client: TaskClient, plan: Plan, number: int, result: Result[Any]) -> None:
        self._task_client, self._plan, self._number, self._result = task_client, plan, number, result

    @property
    def id(self) -> str:
        return self._result.id

    @property
    def state(self) -> TaskState:
        state = self._result.state
        return "done" if state == "failed" and self._is_collected() else state

    def _is_collected(self) -> bool:
        if not self._plan.steps[self._number].collected:
            return False
        return unblocks(self._plan, self._number, self._task_client.results.read(self._result.id))

    def wait(self, timeout: float | None) -> None:
        with self._as_value():
            self._result.wait(timeout=timeout)

    async def ended(self) -> None:
        with self._as_value():
            await self._result.ended()

    @contextmanager
    def _as_value(self) -> Iterator[None]:
        try:
            yield
        except TaskFailed:
            if not self._is_collected():
                raise


def _wait_for(end: _End, ends: Sequence[_End], until: float | None) -> None:
    """Wait for an end, or for the failure of another one."""
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        if len(ends) == 1:
            return end.wait(left)
        pause = _POLL_SECONDS if left is None else min(left, _POLL_SECONDS)
        try:
            return end.wait(0.0 if left is None and is_in_worker() else pause)
        except ResultTimeout:
            for other in ends:
                if other.state in _TELLING:
                    other.wait(0)
            check_wait(f"step {end.id}", bounded=until is not None)
            if left is not None and left <= _POLL_SECONDS:
                raise


def _checked(identity: str) -> str:
    if isinstance(identity, str) and "#" in identity:
        raise InvalidReceipt(
            f"{shown(identity)} is the id of a step: give that of its workflow, which is before the first #"
        )
    check_task_id(identity)
    return in_run(identity, 0)
