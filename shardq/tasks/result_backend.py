"""The results of tasks: entries that are written once, under keys that are made of the tasks' ids.

The first writer decides: the worker that ran the task, or a client that cancels it. The plans of workflows are entries
too, in another queue, so that a list of workflows reads nothing else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from itertools import chain, islice
from typing import cast

import msgspec

from shardq.base.log import Log
from shardq.base.outgoing_message import OnConflict, OutgoingMessage
from shardq.base.waits import BackgroundThread, Flag
from shardq.client import Client
from shardq.core.message import StoredMessage
from shardq.errors import ShardqError, UniqueKeyTaken
from shardq.tasks.entries import (
    MAX_ENTRY_BYTES,
    Decided,
    Entry,
    EntryQueue,
    ancestors_of,
    in_run,
    key_of,
    run_of,
    runs_of,
)
from shardq.tasks.errors import ResultMissing
from shardq.tasks.plans import AssignedIds, read_assigned_ids

__all__ = ["ResultBackend", "Upkeep"]

_log = Log(__name__)

RESULTS = "_shardq/tasks/results"
WORKFLOWS = "_shardq/tasks/workflows"
RESERVED_SECONDS = 60.0  # for which it is kept that a task waits in a worker
_WORKFLOW = "workflow"  # the header of its plan: its id
UPKEEP_SECONDS = 60.0
_PLANS = 50
_RUNS = 8  # runs of a workflow that are looked for at a time
_PAUSE = 0.05  # seconds
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Entry)


class ResultBackend:
    """The entries of a store: the outcomes of tasks and steps, and the plans of workflows."""

    def __init__(self, client: Client) -> None:
        self._results, self._workflows = EntryQueue(client, RESULTS), EntryQueue(client, WORKFLOWS)

    def decide(self, decided: Sequence[Decided]) -> None:
        """Write entries where none stands. May be repeated after any result."""
        entries = [(each, self._stored(each)) for each in decided]
        if entries:
            self._results.write(
                [_message("r", each.task, _ENCODER.encode(entry), each.keep) for each, entry in entries]
            )

    def value(self, task: str, entry: Entry) -> bytes:
        """Return the result of a task, also if that is stored beside its entry. Raises ResultMissing."""
        if not entry.large:
            return entry.value
        found = self._results.read_large(key_of("v", entry.large))
        if found is None:
            raise ResultMissing(f"the value of {task} is not kept any more")
        return found

    def read(self, task: str) -> Entry | None:
        """Return the outcome of a task; None if there is none yet, or it has expired."""
        return self.read_many([task]).get(task)

    def read_many(self, tasks: Sequence[str]) -> dict[str, Entry]:
        """Return the entries of those tasks that have one: one request, and one for each of these.

        Steps that were done in an earlier run of a workflow count in later ones; steps that failed or were cancelled
        do not.
        """
        return {task: entry for task, (entry, _) in self.dated(tasks).items()}

    def dated(self, tasks: Sequence[str]) -> dict[str, tuple[Entry, datetime]]:
        """Return the outcomes of tasks, as :meth:`read_many`, and when that was."""
        runs = self._runs(tasks)
        found = {
            task: (_DECODER.decode(cast("bytes", message.body)), message.enqueued_at)
            for task, message in self._find("r", list(chain.from_iterable(runs.values()))).items()
        }
        valid = {
            task: [
                found[each]
                for each in own
                if each in found and (each == task or _holds_in_later_runs(found[each][0]))
            ]
            for task, own in runs.items()
        }
        return {task: entries[0] for task, entries in valid.items() if entries}

    def entered(self, tasks: Sequence[str]) -> list[bool]:
        """Return which tasks have an entry, or had one a moment ago; one request. A hint: only :meth:`read` is sure."""
        if any(run_of(task) for task in tasks):
            return [self.read(task) is not None for task in tasks]
        return [holder is not None for holder in self._results.holders([key_of("r", task) for task in tasks])]

    def outcomes(self, tasks: Sequence[str], *, working: bool = False) -> dict[str, Entry]:
        """Return the outcomes of tasks, also of those whose workflow, or a bucket that they are in, was cancelled.

        So is a task that has returned the workflow.

        For a worker that is ``working`` on them, steps of a run of a workflow are cancelled that a later run has
        overtaken.
        """
        above = {task: [task, *ancestors_of(task)] for task in tasks}
        wanted = list(dict.fromkeys(each for ids in above.values() for each in ids))
        found = self.read_many(wanted)
        overtaken = self._overtaken(tasks) if working else set[str]()
        outcomes: dict[str, Entry] = {}
        for task, ids in above.items():
            cancelled = task in overtaken or any(
                (entry := found.get(each)) and entry.state == "cancelled" for each in ids
            )
            if task in found or cancelled:
                outcomes[task] = found.get(task, Entry("cancelled"))
        return outcomes

    def enter_run(self, workflow: str, keep: float) -> None:
        """Note that a run of a workflow has begun, which ends the earlier ones."""
        self._results.write([_message("n", workflow, b"", keep)])

    def last_run(self, workflow: str) -> int:
        """Return the number of the run of a workflow that began last: 0 unless it was retried."""
        last = 0
        while True:
            runs = [in_run(workflow, last + number) for number in range(1, _RUNS + 1)]
            holders = self._results.holders([key_of("n", each) for each in runs])
            begun = holders.index(None) if None in holders else _RUNS
            last += begun
            if begun < _RUNS:
                return last

    def has_begun(self, runs: Sequence[str]) -> list[bool]:
        """Return which runs of workflows have begun, of those behind the first ones: in one request."""
        return [holder is not None for holder in self._results.holders([key_of("n", each) for each in runs])]

    def _runs(self, tasks: Sequence[str]) -> dict[str, list[str]]:
        """Return the ids under which something may stand of each task: in its run, and in those before it.

        Ids are forged. So a run with several before it, maybe thousands, has to have begun, or none is looked at.
        """
        late = [task for task in tasks if run_of(task) > 1]
        begun = self.has_begun([task.partition("#")[0] for task in late]) if late else []
        forged = {task for task, has_begun in zip(late, begun, strict=True) if not has_begun}
        return {task: [task] if task in forged else runs_of(task) for task in tasks}

    def _stored(self, decided: Decided) -> Entry:
        """Return the entry, whose value is stored beside the queue if it is large: before the entry, which names it."""
        if len(decided.entry.value) <= MAX_ENTRY_BYTES:
            return decided.entry
        self._results.write_large(key_of("v", decided.task), decided.entry.value, decided.keep)
        return msgspec.structs.replace(decided.entry, value=b"", large=decided.task)

    def _overtaken(self, tasks: Sequence[str]) -> set[str]:
        """Return the steps whose workflow has begun a later run."""
        later = {task: in_run(task, run_of(task) + 1).partition("#")[0] for task in tasks if "#" in task}
        runs = list(dict.fromkeys(later.values()))
        begun = dict(zip(runs, self._results.holders([key_of("n", each) for each in runs]), strict=True))
        return {task for task, run in later.items() if begun[run] is not None}

    def enter_whole(self, task: str, plans: bytes, keep: float) -> bytes:
        """Store all plans of a task's result, unless such are stored; returns the stored ones."""
        key = key_of("g", task)
        self._results.write_large(key, plans, keep)
        if (found := self._results.read_large(key)) is None:
            raise ResultMissing(f"what task {task} returned is not kept any more")
        return found

    def enter_plans(self, plans: Iterable[tuple[str, bytes]], keep: float) -> None:
        """Store the plans of workflows, unless they are stored. They are drawn some at a time."""
        drawn = iter(plans)
        while some := list(islice(drawn, _PLANS)):
            self._results.write([_message("w", bucket, plan, keep) for bucket, plan in some])

    def enter_workflow(self, workflow: str, plan: bytes, keep: float) -> None:
        """Store the plan of a workflow, unless it is stored. By this it is listed, for as long as it is kept."""
        message = _message("w", workflow, plan, keep)
        self._workflows.write([msgspec.structs.replace(message, headers={_WORKFLOW: workflow})])

    def plan(self, workflow: str) -> bytes | None:
        """Return the plan of a workflow or bucket that has begun."""
        kept_in = self._results if "#" in workflow else self._workflows
        return self._read("w", in_run(workflow, 0), kept_in)

    def enter_assigned_ids(self, workflow: str, ids: bytes, keep: float) -> None:
        """Write down where the first steps of a workflow or bucket are to be stored, unless that is written."""
        self._results.write([_message("s", workflow, ids, keep)])

    def assigned_ids(self, workflow: str) -> AssignedIds | None:
        """Return where the first steps of a workflow or bucket are stored, or were; None when that is not written."""
        stored = self._read("s", workflow, self._results)
        return None if stored is None else read_assigned_ids(stored)

    def workflows(self) -> Iterator[tuple[str, StoredMessage]]:
        """Return the workflows that have begun, and are kept: their ids, and their plans as they are stored."""
        for message in self._workflows.all():
            yield str(message.headers[_WORKFLOW]), message

    def last_runs(self, workflows: Sequence[str]) -> list[str]:
        """Return the ids of the runs that began last, in one request for those that were never retried."""
        again = self._results.holders([key_of("n", in_run(each, 1)) for each in workflows])
        return [
            each if holder is None else in_run(each, self.last_run(each))
            for each, holder in zip(workflows, again, strict=True)
        ]

    def write_progress(self, task: str, progress: bytes, keep: float) -> None:
        """Note the progress of a task, in place of the note before."""
        with suppress(UniqueKeyTaken):  # that has expired, and is being removed
            self._results.write([_message("p", task, progress, keep, "replace")])

    def progress(self, task: str) -> bytes | None:
        """Return how far a task is, as it was noted last."""
        return self._read("p", task, self._results)

    def enter_reserved(self, deliveries: Mapping[str, int]) -> None:
        """Note that tasks wait in a worker at these deliveries, for a minute."""
        self._results.write(
            [
                _message("q", task, str(delivery).encode(), RESERVED_SECONDS, "replace")
                for task, delivery in deliveries.items()
            ]
        )

    def remove_reserved(self, tasks: Iterable[str]) -> None:
        """Take that back: they begin, or are returned to their queue."""
        for task in tasks:
            self._results.remove(key_of("q", task))

    def reserved(self, tasks: Sequence[str]) -> dict[str, int]:
        """Return the tasks that wait in a worker, each with its delivery."""
        found = self._find("q", tasks) if tasks else {}
        return {task: int(cast("bytes", message.body)) for task, message in found.items()}

    def forget(self, task: str) -> None:
        """Remove all entries of a task."""
        for kind in ("r", "p", "v"):
            self._results.remove(key_of(kind, task))

    def wait(self, seconds: float) -> None:
        """Sleep until an entry may have been written, for at most ``seconds``."""
        if not self._results.wait(seconds):
            time.sleep(min(seconds, _PAUSE))

    def remove_old(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Remove the expired entries, until that is stopped; returns how many they were."""
        return self._results.remove_old(stopped) + self._workflows.remove_old(stopped)

    def _read(self, kind: str, task: str, kept_in: EntryQueue) -> bytes | None:
        message = kept_in.find([key := key_of(kind, task)]).get(key)
        return None if message is None else cast("bytes", message.body)

    def _find(self, kind: str, tasks: Sequence[str]) -> Mapping[str, StoredMessage]:
        """Return the entries that stand and have not expired, by the ids of their tasks."""
        tasks_of = {key_of(kind, task): task for task in tasks}
        return {tasks_of[key]: message for key, message in self._results.find(list(tasks_of)).items()}


def _holds_in_later_runs(entry: Entry) -> bool:
    """Return True for what became of a step in an earlier run, if that is so in later ones."""
    return entry.state == "done" and not entry.partial


def _message(
    kind: str, task: str, body: bytes, keep: float, on_conflict: OnConflict = "keep"
) -> OutgoingMessage:
    return OutgoingMessage(body=body, unique_key=key_of(kind, task), delay=keep, on_conflict=on_conflict)


class Upkeep:
    """The upkeep of one worker: once a minute, ``beside`` its tasks in another thread, or between them.

    It ends soon when its worker is ``stopping``. It makes no requests when the worker has no time left for them: every
    request is within ``leaving()``. Failed work is left to the next time. For one thread.
    """

    def __init__(
        self,
        results: ResultBackend,
        *,
        beside: bool,
        stopping: Callable[[], bool],
        leaving: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._results, self._beside = results, beside
        self._stopping, self._leaving = stopping, leaving
        self._closed = Flag()
        self._thread = BackgroundThread("shardq-tasks-upkeep")
        self._due = time.monotonic() + random.uniform(0.5, 1.0) * UPKEEP_SECONDS

    def begin_if_due(self) -> None:
        """Begin if it is time, unless the one before is still at it."""
        if time.monotonic() < self._due or not self._thread.has_ended:
            return
        self._due = time.monotonic() + UPKEEP_SECONDS
        if self._beside:
            self._thread.run(self._remove)
        else:
            self._remove()

    def finish(self) -> None:
        """Remove all that has expired, unless the worker is stopping."""
        self._thread.join()
        self._remove()

    def close(self) -> None:
        """End the thread, after the entries that it removes just now."""
        self._closed.set()
        self._thread.join()

    def _remove(self) -> None:
        try:
            with self._leaving():
                self._results.remove_old(lambda: self._closed.is_set() or self._stopping())
        except ShardqError as error:
            _log.warning("expired results were not removed: %s", error)
