"""What a worker runs in one go: one task, or those of a group that were received together, and what became of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import BoundArguments
from typing import Any

from shardq.base.outgoing_message import Headers
from shardq.batch import Batch
from shardq.errors import InvalidMessage, MessageTooLarge, PartialSend, QueueNotFound, ShardqError
from shardq.message import Message, StoredMessage
from shardq.outcome import LONGEST_DELAY, DeadLetter, Discard, Outcome, Retry, Snooze
from shardq.queue_internals import one_by_one
from shardq.tasks.advancing import UNSENDABLE
from shardq.tasks.binding import Binding
from shardq.tasks.calling import Loop, Middleware, run_function
from shardq.tasks.current import CurrentTask
from shardq.tasks.errors import (
    ArgumentsRejected,
    Failure,
    ResultMissing,
    ResultRejected,
    TaskCancelled,
    UnknownTask,
    WaitRejected,
)
from shardq.tasks.gathering import body_of
from shardq.tasks.ids import check_task_id, is_step, run_of
from shardq.tasks.options import LONGEST_KEPT, LONGEST_NAME
from shardq.tasks.plans import APART, KEEP, NAME, RUN, STEP, TIMEOUT, WORKFLOW
from shardq.tasks.results import MAX_RESULT_BYTES, Decided, Entry
from shardq.tasks.starting import give_up, start_bucket, start_run, start_workflow
from shardq.tasks.tail import enter_tail
from shardq.tasks.task import Signature, Task
from shardq.tasks.workflow import Workflow
from shardq.worker.attempt import Attempt, EachMessage, Ending
from shardq.worker.gate import Gate
from shardq.worker.report import Tally

__all__ = ["Runner", "Unit", "first_of", "kept", "ledger_id", "units_of"]

AGAIN_SECONDS = 5.0
STALE_SECONDS = 1.0  # a task that has waited for so long in the worker may have been cancelled since


class Unit:
    """Messages of one batch that are run one after the other by one thread."""

    def __init__(self, batch: Batch, part: Batch) -> None:
        self.batch, self.attempt = batch, Attempt(part)
        self.entries: dict[Message, Entry] = {}  # of tasks that have ended, as far as is known
        self.failures: dict[Message, Failure] = {}
        self.seconds: dict[Message, float] = {}  # for which each ran
        self.begun: set[Message] = set()  # whose steps were sent: they end when these do
        self.planned: set[Message] = set()
        """Those whose plans are stored at this delivery, which is not their last one."""
        self.known: dict[str, Entry] | None = None  # what stood of its tasks when it was received
        self.received_at = time.monotonic()

    def fail(self, message: Message, error: Exception, call: str) -> None:
        """Keep why a task failed: its error, or that which made it choose an outcome."""
        told = error.__cause__ if isinstance(error, Outcome) and error.__cause__ else error
        self.failures[message] = Failure.of(told, message.deliveries, call)

    def decided(self) -> list[Decided]:
        """The entries of those of its tasks that have ended for good, and are to have one."""
        for ending in self.attempt.endings:
            dead = isinstance(ending.outcome, DeadLetter)
            if dead or (isinstance(ending.outcome, Retry) and _is_last(ending.message)):
                self._fail(ending.message, ending.reason)
        for message in self.attempt.finished:
            if message not in self.entries and message not in self.begun:
                self._fail(message, "discarded")
        return [
            Decided(ledger_id(message), entry, keep)
            for message, entry in self.entries.items()
            if (keep := kept(message)) > 0
        ]

    @property
    def steps(self) -> list[Message]:
        """Those of its tasks that have ended for good and are steps of workflows."""
        return [message for message in self.entries if _is_step(message)]

    def put_off(self, message: Message, reason: str) -> None:
        """Let a task that has ended be delivered again soon: what comes after it cannot be sent now."""
        attempt = self.attempt
        attempt.finished = [each for each in attempt.finished if each != message]
        attempt.endings = [each for each in attempt.endings if each.message != message]
        attempt.endings.append(Ending(message, Snooze(AGAIN_SECONDS), reason))

    def _fail(self, message: Message, reason: str) -> None:
        known = self.failures.get(message) or Failure("", reason, deliveries=message.deliveries)
        seconds = self.seconds.get(message)
        self.entries.setdefault(message, Entry("failed", failure=known, seconds=seconds))


def _ignore(_: Message) -> None:
    """Do nothing about a message."""


class Runner:
    """Runs the tasks of units. Any number of threads may use it."""

    def __init__(
        self,
        tasks: Mapping[str, Task[Any, Any, Any]],
        middleware: tuple[Middleware, ...],
        binding: Binding,
        loop: Loop,
        on_error: Callable[[Exception], None] = lambda _: None,
        *,
        stopping: Callable[[], bool],
    ) -> None:
        self._tasks, self._middleware, self._loop = tasks, middleware, loop
        self._on_error, self._stopping = on_error, stopping
        self.begins: Callable[[Message], None] = _ignore  # called with each task when it begins
        self.ends: Callable[[Message], None] = _ignore  # and with one that ends before others of its unit
        self._binding, self._log = binding, binding.results

    def look(self, units: Sequence[Unit]) -> None:
        """See what stands already of what was received together. What is not seen now is looked at later."""
        ids = [ledger_id(each) for unit in units for each in unit.attempt.batch if _may_stand(each)]
        if not ids:
            return
        with suppress(ShardqError):
            known = self._log.standing(ids, working=True)
            for unit in units:
                unit.known = known

    def is_last(self, message: Message) -> bool:
        """True for a task at its last attempt, as far as can be known now: it has none if its worker dies."""
        with suppress(ShardqError):
            return message.deliveries >= self._attempts(message) or message.last_delivery
        return False

    def run(self, unit: Unit, tally: Tally, gate: Gate) -> None:
        """Run its tasks, and note what is to become of each. Raises KeyboardInterrupt."""
        unit.attempt.called = self._called
        calls = EachMessage(lambda message: self._handled(unit, message), self._outcome)
        try:
            calls.run(unit.attempt, tally, gate)
        finally:  # those of a group that ended before one which could not begin are settled too
            endings = [self._of_last_attempt(each) for each in unit.attempt.endings]
            unit.attempt.endings = [_counted(unit, each) for each in endings]

    def _of_last_attempt(self, ending: Ending) -> Ending:
        """An ending, where a task asks for another attempt than those that it has: it has failed for good."""
        if isinstance(ending.outcome, Retry) and ending.message.deliveries >= self._attempts(ending.message):
            return Ending(ending.message, DeadLetter(), ending.reason)
        return ending

    def _attempts(self, message: Message) -> float:
        """How often a task is tried, as far as it says so."""
        task = self._tasks.get(str(_headers(message).get(NAME)))
        attempts = None if task is None else task.settings.policy.attempts
        return math.inf if attempts is None else attempts

    def _handled(self, unit: Unit, message: Message) -> object:
        self.begins(message)
        try:
            return self._handle(unit, message)
        finally:
            if len(unit.attempt.batch) > 1:
                self.ends(message)

    def _handle(self, unit: Unit, message: Message) -> object:
        """Run one task. Its value is kept; an outcome that it returns is handed on."""
        try:
            if (known := self._known(unit, message)) is not None:
                return self._as_decided(unit, message, known)
            if _headers(message).get(NAME) == WORKFLOW or self._has_called(message):
                return self._start(unit, message, lambda: self._begin(message))
            value = self._spent(message) or self._run(unit, message)
            if isinstance(value, (Signature, Workflow)):
                return self._start(unit, message, lambda: self._call_instead(unit, message, value))
            if not isinstance(value, Outcome):
                unit.entries[message] = self._entry(message, value, unit.seconds[message])
                return None
        except _Away:
            return Snooze(AGAIN_SECONDS)
        except BaseException as raised:
            error = unit.attempt.failure(raised)
            if isinstance(error, TaskCancelled):
                unit.entries[message] = Entry("cancelled")
            elif error is not None:
                unit.fail(message, error, self._call(message))
            raise
        unit.fail(message, value, self._call(message))
        return value

    def _has_called(self, message: Message) -> bool:
        """True for a task that has returned a workflow before: at an earlier delivery, or in an earlier run."""
        identity = ledger_id(message)
        with _while_away():
            if message.deliveries == 1 and not message.last_delivery and not run_of(identity):
                return False
            return self._binding.plan(identity) is not None

    def _call_instead(self, unit: Unit, message: Message, given: Signature[Any] | Workflow) -> None:
        identity = ledger_id(message)
        name, is_last = str(_headers(message)[NAME]), message.last_delivery
        again = message.deliveries > 1 or is_last
        if not is_last:  # from here on a delay counts, so that the next delivery looks for the plan
            unit.planned.add(message)
        enter_tail(self._binding, identity, name, given, kept(message), again=again)
        start_bucket(self._binding, identity, b"")

    def _call(self, message: Message) -> str:
        """The task and its arguments in short; its name alone where it is not known, or has a large body."""
        task = self._tasks.get(str(_headers(message).get(NAME)))
        if task is None or message.large is not None:
            return _name(message)
        return task.arguments.summary(message.raw)

    def _called(self, message: Message) -> str:
        if _headers(message).get(NAME) == WORKFLOW:
            return f"workflow {ledger_id(message)}"
        return f"task {self._call(message)}, {ledger_id(message)},"

    def _start(self, unit: Unit, message: Message, begin: Callable[[], None]) -> object:
        """Begin a workflow, a bucket of one, or what a task returned. That the store is away is no failure of it."""
        with _while_away():
            try:
                begin()
            except ShardqError as error:
                cause = error.__cause__ if isinstance(error, PartialSend) else error
                if not isinstance(cause, UNSENDABLE):
                    raise
                unit.fail(message, cause, "")
                if _headers(message).get(NAME) == WORKFLOW and not _is_step(message):
                    give_up(self._binding, str(_headers(message).get(RUN, message.id)), cause)
                return DeadLetter(str(cause))
        unit.begun.add(message)
        return None

    def _begin(self, message: Message) -> None:
        if _headers(message).get(NAME) != WORKFLOW:  # a task that has returned one before
            start_bucket(self._binding, ledger_id(message), b"")
        elif _is_step(message):
            start_bucket(
                self._binding, ledger_id(message), None if APART in _headers(message) else message.raw
            )
        elif RUN in _headers(message):
            check_task_id(run := str(_headers(message)[RUN]))
            start_run(self._binding, run)
        else:
            start_workflow(self._binding, message)

    def _run(self, unit: Unit, message: Message) -> Any:
        task = self._task(message)
        given = self._arguments(task, message)
        current = CurrentTask(
            task.name, ledger_id(message), message.deliveries, kept(message), self._log, self._stopping
        )
        began = time.monotonic()
        try:
            return run_function(
                task.function,
                given,
                current,
                loop=self._loop,
                middleware=self._middleware,
                timeout=_timeout(message),
            )
        finally:
            unit.seconds[message] = time.monotonic() - began

    def _task(self, message: Message) -> Task[Any, Any, Any]:
        name = message.headers.get(NAME)
        task = self._tasks.get(name) if isinstance(name, str) else None
        if task is None:
            then = "retry its workflow" if _is_step(message) else "redrive"
            raise UnknownTask(
                f"this worker has no task {name!r:.{LONGEST_NAME}}: load the module that defines it, or give a "
                f"task its old name with @tasks.task(name=...), then {then}"
            )
        return task

    def _arguments(self, task: Task[Any, Any, Any], message: Message) -> BoundArguments:
        if APART not in _headers(message):
            return task.arguments.decode(message.raw)
        try:
            with _while_away():
                body = body_of(self._binding, ledger_id(message), message.raw)
        except (ResultMissing, MessageTooLarge) as error:
            raise ArgumentsRejected(
                f"what step {ledger_id(message)} takes cannot be read: {error}"
            ) from error
        return task.arguments.decode(body)

    def _entry(self, message: Message, value: object, seconds: float) -> Entry:
        if not kept(message):
            return Entry("done")
        body = self._task(message).arguments.encode_result(value)
        if len(body) > MAX_RESULT_BYTES:
            raise ResultRejected(
                f"the result of task {self._task(message).name!r} has {len(body):,} bytes, and may have "
                f"{MAX_RESULT_BYTES:,}: store it elsewhere and return where it is, or set keep_result=0"
            )
        return Entry("done", body, seconds=seconds)

    def _known(self, unit: Unit, message: Message) -> Entry | None:
        """What was decided of a task that an earlier worker ran, or that was cancelled meanwhile."""
        stale = time.monotonic() - unit.received_at > STALE_SECONDS
        if not (kept(message) if stale else _may_stand(message)):
            return None
        if stale or unit.known is None:
            ids = [ledger_id(each) for each in unit.attempt.batch]
            with _while_away():
                unit.known = self._log.standing(ids, working=True)
        return unit.known.get(ledger_id(message)) if unit.known else None

    def _spent(self, message: Message) -> DeadLetter | None:
        """What becomes of a task that was tried as often as it may be, each time by a worker that died of it."""
        if message.deliveries == 1:
            return None
        attempts = self._attempts(message)
        if message.deliveries <= attempts:
            return None
        return DeadLetter(
            f"delivered {attempts} times, and the last worker died or lost its lease: retry={attempts}"
        )

    def _as_decided(self, unit: Unit, message: Message, entry: Entry) -> object:
        unit.entries[message] = entry
        if entry.state == "failed":
            return DeadLetter(str(entry.failure))
        return None

    def _outcome(self, message: Message, error: Exception) -> Outcome | None:
        """What becomes of a task that raised."""
        if isinstance(error, TaskCancelled):
            return Discard("cancelled")
        self._on_error(error)
        if isinstance(error, UnknownTask | ArgumentsRejected | ResultRejected | WaitRejected):
            return DeadLetter()
        task = self._tasks.get(str(_headers(message).get(NAME)))
        return None if task is None else task.settings.policy.outcome(error, message.deliveries)


class _Away(Exception):
    """The store was away before a task could begin. That is no failure of the task, and costs no delivery."""


@contextmanager
def _while_away() -> Iterator[None]:
    try:
        yield
    except ShardqError as error:
        if error.retryable:
            raise _Away from error
        raise


def _counted(unit: Unit, ending: Ending) -> Ending:
    """An ending, where a task is put off whose plan may stand: this delivery counts, so the next looks for the plan.

    With its last delivery it would be given up. There a plan is looked for at the first delivery, too.
    """
    if ending.message not in unit.planned or not isinstance(ending.outcome, Snooze):
        return ending
    return Ending(ending.message, Retry(ending.outcome.seconds), ending.reason)


def _is_last(message: Message) -> bool:
    """True at the last delivery of a message; also where its queue was deleted, so that nothing of it is left."""
    try:
        return message.last_delivery
    except QueueNotFound:
        return True


def units_of(batch: Batch, of_a_group: int) -> list[Unit]:
    """The messages of a batch, each for itself; of each group the first few together, which run one after the other."""
    if all(message.lane is None for message in batch):
        return [Unit(batch, part) for part in one_by_one(batch)]
    parts: dict[object, list[Message]] = {}
    for place, message in enumerate(batch):
        parts.setdefault(place if message.lane is None else message.lane, []).append(message)
    return [Unit(batch, batch.part(messages[:of_a_group])) for messages in parts.values()]


def first_of(unit: Unit) -> Unit:
    """A unit of the first of its messages alone."""
    return unit if len(unit.attempt.batch) == 1 else Unit(unit.batch, unit.batch.part(unit.attempt.batch[:1]))


def _may_stand(message: Message) -> bool:
    """True when something may stand of a task that has just been received."""
    return (_is_step(message) or message.deliveries > 1) and kept(message) > 0


def _headers(message: Message | StoredMessage) -> Headers:
    """The headers of a message; none of one that is damaged in the store, which fails when its task is looked for."""
    try:
        return message.headers
    except InvalidMessage:
        return {}


def ledger_id(message: Message) -> str:
    """The id under which the result of a task is stored: its own, or that of the step."""
    step = _headers(message).get(STEP)
    return str(step) if step is not None and is_step(step) else message.id


def kept(message: Message | StoredMessage) -> float:
    """For how many seconds the result of a task is kept. What others wrote into its header harms nobody."""
    keep = _headers(message).get(KEEP)
    return min(float(keep), LONGEST_KEPT) if isinstance(keep, int | float) and keep > 0 else 0.0


def _name(message: Message) -> str:
    """What a task is called, to tell of it: others may have written a megabyte into its header."""
    return str(_headers(message).get(NAME))[:LONGEST_NAME]


def _timeout(message: Message) -> float | None:
    """The longest time of one attempt. None, too, where others wrote something else into its header."""
    timeout = _headers(message).get(TIMEOUT)
    return timeout if isinstance(timeout, float) and 0 < timeout <= LONGEST_DELAY else None


def _is_step(message: Message) -> bool:
    step = _headers(message).get(STEP)
    return step is not None and is_step(step)
