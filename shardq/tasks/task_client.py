"""The link between an app of tasks and a store: a client, the queues of the tasks, and their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, TypeVar

from shardq.base.codec import UNREADABLE
from shardq.base.outgoing_message import Headers, OutgoingMessage
from shardq.base.rate import Rate
from shardq.base.receipt import MessageId
from shardq.client import Client
from shardq.client.producer import Producer
from shardq.client.queue import Queue
from shardq.client.queue_internals import found_in, holders_of
from shardq.core.message import StoredMessage
from shardq.core.sending.planned_bundles import check_sends
from shardq.core.settings import QueueSettings, warn_of_differences
from shardq.errors import BodyNotFound, InvalidMessage, MessageTooLarge, QueueNotFound, SchemaMismatch
from shardq.storage.per_process import OwnLock
from shardq.storage.requests import EntryState
from shardq.tasks.entries import KEEP, NAME, RUN, STEP, WORKFLOW, in_run, key_of, run_of, split_step, step_id
from shardq.tasks.options import TaskOptions
from shardq.tasks.plans import (
    AssignedIds,
    Bucket,
    Plan,
    Step,
    grouped_step,
    is_worth_assigning,
    read_plan,
    read_plans,
)
from shardq.tasks.result_backend import ResultBackend

__all__ = ["TaskClient", "cut", "settings_for"]

T = TypeVar("T")

MOST_AT_ONCE = 256  # steps that one request asks for
MOST_PLANS = 100
MOST_QUEUES = 1_000  # that are kept open


class _Opened(NamedTuple):
    """A queue that is kept open, and the tasks whose options were compared with its settings."""

    queue: Queue
    producer: Producer
    tasks: set[str]


class TaskClient:
    """One client, with the objects that are opened once for all tasks.

    ``options`` returns those of the tasks of a queue, and of others that are sent there. A missing queue is created
    with their limits.
    """

    def __init__(
        self, client: Client, options: Callable[[str, Collection[str]], Mapping[str, TaskOptions]]
    ) -> None:
        self.client, self.results = client, ResultBackend(client)
        self.options = options
        self._lock = OwnLock()
        self._opened_queues: dict[str, _Opened] = {}
        self._plans: dict[str, Plan] = {}  # of the workflows that were seen last
        self._assigned: dict[str, AssignedIds] = {}  # of the same

    def send(
        self, queue: str, messages: Sequence[OutgoingMessage], tasks: Collection[str] = ()
    ) -> Sequence[str]:
        """Store messages, and return their ids. A queue that is missing is created.

        ``tasks`` are those that follow in this queue from a message that begins a workflow.
        """
        names = tasks or {str(each.headers[NAME]) for each in messages if each.headers}
        self.check(queue, messages)
        try:
            return self._with_queue(queue, names, lambda opened: _sent(opened.producer, messages))
        except MessageTooLarge as error:
            raise self._too_large(queue, messages) from error

    def check(self, queue: str, messages: Sequence[OutgoingMessage]) -> None:
        """Raise the errors of the options of messages, so that a call that is refused creates no queue."""
        if queue not in self._opened_queues:
            check_sends(self.client._contexts, queue, messages)  # noqa: SLF001 - as a send does

    def check_groups(self, steps: Sequence[Step], buckets: Mapping[int, Bucket]) -> None:
        """Raise UnsupportedByStore for a step of a group that no worker could send, as the store has no groups."""
        contexts = self.client._contexts  # noqa: SLF001 - as above
        if not contexts.store.capabilities.groups and (step := grouped_step(steps, buckets)) is not None:
            check_sends(contexts, step.queue, [OutgoingMessage(body=b"", group=step.group)])

    def settings(self, queue: str, tasks: Collection[str] = ()) -> QueueSettings:
        """Return the settings of a queue of tasks, at most a second old. One that is missing is created."""
        return self._with_queue(queue, tasks, lambda opened: opened.queue.settings)

    def send_stream(
        self,
        queue: str,
        body: Callable[[], BinaryIO],
        message: OutgoingMessage,
        tasks: Collection[str] = (),
    ) -> str:
        """Store a message with the content of a file as its body, and return its id. The rest is as in :meth:`send`."""
        options: Any = {"headers": message.headers, "delay": message.delay}
        return self._with_queue(queue, tasks, lambda opened: opened.producer.send_stream(body(), **options))

    def queue(self, name: str, tasks: Collection[str] = ()) -> Queue:
        """Return a queue of tasks, of these among others; created with their limits if it is missing."""
        options = self.options(name, tasks)
        try:
            found = self.client.queue(name)
        except (QueueNotFound, SchemaMismatch):  # or nothing is in the database yet
            found = self.client.create_queue(name, exist_ok=True, **settings_for(options))
        _warn_of_limits(found, options)
        return found

    def find(self, task: str) -> StoredMessage | None:
        """Return the message of a task, or of a step of a workflow, if it waits or runs in its queue."""
        found = self.stored(task)
        return found if found is not None and _is_open(found) else None

    def running(self, messages: Iterable[StoredMessage]) -> set[str]:
        """Return the ids of the messages whose tasks run: they are in flight, and do not wait in a worker."""
        held = {
            str(each.headers.get(STEP, each.id)): each
            for each in messages
            if each.state is EntryState.IN_FLIGHT
        }
        waiting = self.results.reserved(list(held))
        return {each.id for task, each in held.items() if waiting.get(task) != each.deliveries}

    def stored(self, task: str) -> StoredMessage | None:
        """Return the message of a task as :meth:`find`, also one that was acked, or given up and holds up its group."""
        with suppress(QueueNotFound):
            if "#" in task:
                return self._step(task)
            if run_of(task):
                return self._queue_of(task).get(unique_key=key_of("again", task))
            return self._opened(task).get(task)
        return None

    def plan(self, workflow: str) -> Plan | None:
        """Return the plan of a workflow that has begun; None when it has not, or is kept no longer. It is read once."""
        workflow = in_run(workflow, 0)
        return self._plans.get(workflow) or self.kept_plan(workflow)

    def kept_plan(self, workflow: str) -> Plan | None:
        """Return the plan of a workflow as :meth:`plan`, from the store: one that was read before may have expired."""
        workflow = in_run(workflow, 0)
        if (stored := self.results.plan(workflow)) is None:
            return None
        if len(self._plans) >= MOST_PLANS:  # other threads read it meanwhile
            self._plans = {}
        found = self._plans[workflow] = read_plan(stored)
        return found

    def planned(self, workflow: str) -> Plan | None:
        """Return the plan of a workflow, also of one that has not begun; None when there is no such workflow."""
        if (plan := self.plan(workflow)) is not None:
            return plan
        message = self.find(workflow)
        if message is not None and message.headers.get(NAME) == WORKFLOW:
            with suppress(BodyNotFound):
                return self._unbegun(message)
        return self.plan(workflow)  # it has begun meanwhile

    def remove(self, task: str) -> bool:
        """Take the message of a task out of its queue; False when it is not there."""
        with suppress(QueueNotFound):
            if run_of(task):
                return self._queue_of(task).remove(unique_key=key_of("again", task))
            return self._opened(task).remove(task)
        return False

    def retry(self, run: str) -> None:
        """Send the message that begins another run of a workflow, unless it was sent. May be repeated."""
        headers: Headers = {NAME: WORKFLOW, KEEP: 0.0, RUN: run}
        message = OutgoingMessage(body=b"", headers=headers, unique_key=key_of("again", run))
        self.send(MessageId.parse(in_run(run, 0)).shard.queue, [message])

    def _too_large(self, queue: str, messages: Sequence[OutgoingMessage]) -> MessageTooLarge:
        largest = max(messages, key=lambda each: len(each.body))
        name = largest.headers[NAME] if largest.headers else None
        return MessageTooLarge(
            f"the arguments of task {name!r} have {len(largest.body):,} bytes, and with its headers a message of queue "
            f"{queue!r} may have {self.settings(queue).max_message_bytes:,} (max_message_bytes): store large values "
            "elsewhere and send their place, or raise the limit"
        )

    def _unbegun(self, message: StoredMessage) -> Plan:
        try:
            if message.large is None:
                return read_plan(message.body)
            with self._opened(message.id).open(message.id) as file:
                return next(read_plans(file))[1]
        except (*UNREADABLE, StopIteration) as error:
            raise InvalidMessage(
                f"message {message.id} says that it is a workflow, and its body is not a plan of one: {error}; it was "
                f"forged or damaged: `shardq remove {message.id}`"
            ) from error

    def find_steps(self, workflow: str, plan: Plan, numbers: Sequence[int]) -> dict[int, StoredMessage]:
        """Return the messages of those of these steps that wait or run, by number; some requests for all of them."""
        stored = self._stored_steps(workflow, plan, numbers)
        return {number: each for number, each in stored.items() if _is_open(each)}

    def entered_steps(self, workflow: str, numbers: Sequence[int]) -> set[int]:
        """Return those of these steps that have an entry, or had one a moment ago."""
        found = set[int]()
        for some in cut(numbers):
            entered = self.results.entered([f"{workflow}#{number}" for number in some])
            found.update(number for number, there in zip(some, entered, strict=True) if there)
        return found

    def _stored_steps(self, workflow: str, plan: Plan, numbers: Sequence[int]) -> dict[int, StoredMessage]:
        found: dict[int, StoredMessage] = {}
        for name, some in plan.by_queue(numbers).items():
            with suppress(QueueNotFound):
                queue = self.client.queue(name)
                found |= self._under_assigned_ids(queue, workflow, plan, some)
                found |= _under_keys(queue, workflow, [each for each in some if each not in found])
        return found

    def _step(self, step: str) -> StoredMessage | None:
        workflow, number = split_step(step)
        plan = self.plan(workflow)
        if plan is None or number >= len(plan.steps):
            return None
        return self._stored_steps(workflow, plan, [number]).get(number)

    def _under_assigned_ids(
        self, queue: Queue, workflow: str, plan: Plan, numbers: Sequence[int]
    ) -> dict[int, StoredMessage]:
        """Find first steps that were sent under ids that are written down."""
        if not is_worth_assigning(plan.first) or all(plan.steps[number].after for number in numbers):
            return {}
        places = self._assigned_ids_of(workflow)
        ids = {places[number].id: number for number in numbers if number in places}
        return {ids[identity]: message for identity, message in found_in(queue, list(ids)).items()}

    def _assigned_ids_of(self, workflow: str) -> AssignedIds:
        """Return the ids of the messages of first steps; these never change."""
        if (known := self._assigned.get(workflow)) is not None:
            return known
        if (found := self.results.assigned_ids(workflow)) is None:
            return {}
        if len(self._assigned) >= MOST_PLANS:
            self._assigned = {}
        self._assigned[workflow] = found
        return found

    def _opened(self, task: str) -> Queue:
        return self.client.queue(MessageId.parse(task).shard.queue)

    def _queue_of(self, workflow: str) -> Queue:
        """Return the queue of the messages that begin a workflow, and its runs."""
        return self._opened(in_run(workflow, 0))

    def _with_queue(self, queue: str, tasks: Collection[str], use: Callable[[_Opened], T]) -> T:
        """Return the object for a queue; it is opened again if it was deleted."""
        try:
            return use(self._opened_queue(queue, tasks))
        except QueueNotFound:
            self._opened_queues.pop(queue, None)
            return use(self._opened_queue(queue, tasks))

    def _opened_queue(self, queue: str, tasks: Collection[str]) -> _Opened:
        known = self._opened_queues.get(queue)  # another thread may take it out
        if known is not None and known.tasks.issuperset(tasks):
            return known
        with self._lock.plain:
            known = self._opened_queues.get(queue)
            if known is None:
                opened = self.queue(queue, tasks)
                if len(self._opened_queues) >= MOST_QUEUES:  # others may have deleted them
                    self._opened_queues = {}
                known = self._opened_queues[queue] = _Opened(opened, opened.producer(), set(tasks))
            elif new := set(tasks) - known.tasks:
                own, options = self.options(queue, ()), self.options(queue, new)
                _warn_of_limits(known.queue, {name: options[name] for name in options.keys() - own.keys()})
                known.tasks.update(new)
        return known


def cut(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Return these steps, as many at a time as one request asks for."""
    return (numbers[place : place + MOST_AT_ONCE] for place in range(0, len(numbers), MOST_AT_ONCE))


def _is_open(message: StoredMessage) -> bool:
    """Return False for one that was acked, and for one that was given up and holds up its group."""
    return message.state is not EntryState.PROCESSED and message.blocked is None


def _under_keys(queue: Queue, workflow: str, numbers: Sequence[int]) -> dict[int, StoredMessage]:
    """Return the messages of steps that have unique keys."""
    keys = {step_id(workflow, number).key: number for number in numbers}
    holders = {
        key: each for key, each in zip(keys, holders_of(queue, list(keys)), strict=True) if each is not None
    }
    stored = found_in(queue, [each for each in holders.values() if each])
    found = {keys[key]: stored.get(each) or queue.get(unique_key=key) for key, each in holders.items()}
    return {number: each for number, each in found.items() if each is not None}


def settings_for(options: Mapping[str, TaskOptions]) -> dict[str, Any]:
    """Return the settings with which a queue of these tasks is created; of several limits the first."""
    most = max((each.policy.attempts or 0 for each in options.values()), default=0)
    wanted: dict[str, Any] = {"max_deliveries": max(most, QueueSettings().max_deliveries or 0)}
    limit = next((each.rate_limit for each in options.values() if each.rate_limit is not None), None)
    return wanted if limit is None else wanted | {"rate_limit": limit}


def _warn_of_limits(queue: Queue, options: Mapping[str, TaskOptions]) -> None:
    """Warn of tasks whose queue has another rate limit, or delivers more seldom than they are to be tried."""
    kept, name = queue.settings, queue.name
    rate = None if kept.rate_limit is None else Rate.parse(kept.rate_limit)
    for task, each in options.items():
        what = f"queue {name!r} of task {task!r}"
        if each.rate_limit is not None and Rate.parse(each.rate_limit) != rate:
            warn_of_differences(
                what,
                {"rate_limit": kept.rate_limit},
                {"rate_limit": each.rate_limit},
                f"`shardq alter {name} --rate-limit {each.rate_limit}` changes it",
            )
        attempts = each.policy.attempts or 0
        if kept.max_deliveries is not None and kept.max_deliveries < attempts:
            warn_of_differences(
                what,
                {"max_deliveries": kept.max_deliveries},
                {"max_deliveries": attempts},
                f"the task is tried less often than retry={attempts}; `shardq alter {name} --max-deliveries "
                f"{attempts}` changes it",
            )


def _sent(producer: Producer, messages: Sequence[OutgoingMessage]) -> Sequence[str]:
    return [producer.send(messages[0])] if len(messages) == 1 else producer.send_many(messages)
