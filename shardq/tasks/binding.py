"""What joins an app of tasks to a store: a client, the queues of the tasks, and their results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from shardq.client import Client
from shardq.errors import (
    BodyNotFound,
    InvalidMessage,
    InvalidSetting,
    MessageTooLarge,
    QueueNotFound,
    SchemaMismatch,
)
from shardq.message import StoredMessage
from shardq.outgoing_message import Headers, OutgoingMessage
from shardq.producer import Producer
from shardq.queue import Queue
from shardq.queue_internals import found_in, holders_of
from shardq.receipt import MessageId
from shardq.schedules.schedule import Schedule
from shardq.settings import QueueSettings
from shardq.storage.per_process import OwnLock
from shardq.storage.requests import EntryState
from shardq.tasks.buckets import read_plans
from shardq.tasks.ids import in_run, key_of, run_of, split_step, step_id
from shardq.tasks.options import ScheduleKeywords
from shardq.tasks.places import Places, are_enough
from shardq.tasks.plans import KEEP, NAME, RUN, WORKFLOW, Plan, read_plan
from shardq.tasks.results import ResultLog
from shardq.unreadable import UNREADABLE
from shardq.wording import shown

if TYPE_CHECKING:
    from shardq.tasks.task import Signature

__all__ = ["Binding"]

_log = logging.getLogger(__name__)

MOST_PLANS = 100
MOST_QUEUES = 1_000  # that are kept open


class Binding:
    """One client, with what is opened once for all tasks. ``settings`` are those with which a queue is created."""

    def __init__(self, client: Client, settings: Callable[[str], dict[str, Any]]) -> None:
        self.client, self.results = client, ResultLog(client)
        self._settings = settings
        self._lock = OwnLock()
        self._opened_queues: dict[str, tuple[Queue, Producer]] = {}
        self._told: set[str] = set()  # the queues of which was told that they deliver too seldom
        self._plans: dict[str, Plan] = {}  # of the workflows that were seen last
        self._places: dict[str, Places] = {}  # of the same

    def send(self, queue: str, messages: Sequence[OutgoingMessage]) -> Sequence[str]:
        """Store messages, and return their ids. A queue that is missing is created."""
        producer = self._producer(queue)
        try:
            return _sent(producer, messages)
        except QueueNotFound:  # it was deleted
            self._opened_queues.pop(queue, None)
            return _sent(self._producer(queue), messages)
        except MessageTooLarge as error:
            raise self._too_large(queue, messages) from error

    def settings(self, queue: str) -> QueueSettings:
        """The settings of a queue of tasks, at most a second old. One that is missing is created."""
        try:
            return self._queue_and_producer(queue)[0].settings
        except QueueNotFound:  # it was deleted
            self._opened_queues.pop(queue, None)
            return self._queue_and_producer(queue)[0].settings

    def send_stream(self, queue: str, body: Callable[[], BinaryIO], message: OutgoingMessage) -> str:
        """Store a message whose body is what a file gives, and return its id. A queue that is missing is created."""
        options: Any = {"headers": message.headers, "delay": message.delay}
        try:
            return self._producer(queue).send_stream(body(), **options)
        except QueueNotFound:  # it was deleted
            self._opened_queues.pop(queue, None)
            return self._producer(queue).send_stream(body(), **options)

    def schedule(self, schedule: str, call: Signature[Any], timing: ScheduleKeywords) -> Schedule:
        """Send a call at each occurrence of a schedule. A queue that is missing is created."""
        message, queue = call.message(), call.options.queue
        wrong = {each: getattr(message, each) for each in ("delay", "due", "unique_key", "dedupe_key")}
        if given := [each for each, value in wrong.items() if value]:
            raise InvalidSetting(
                f"{given[0]}={shown(wrong[given[0]])} of task {call.task.name!r}: a schedule says when its task is "
                "sent, and overlap='skip' leaves out one while the last one waits or runs; use "
                f"task.options({given[0]}={0.0 if given[0] == 'delay' else None})"
            )
        self._producer(queue)
        return self.client.schedules.create(
            schedule,
            queue=queue,
            body=message.body,
            headers=message.headers,
            priority=message.priority,
            group=message.group,
            ttl=message.ttl,
            **timing,
        )

    def queue(self, name: str) -> Queue:
        """A queue of tasks; created if it is missing."""
        wanted = self._settings(name)
        try:
            found = self.client.queue(name)
        except (QueueNotFound, SchemaMismatch):  # or nothing is in the database yet
            return self.client.create_queue(name, exist_ok=True, **wanted)
        self._tell_of_fewer(name, found.settings.max_deliveries, wanted.get("max_deliveries", 0))
        return found

    def _tell_of_fewer(self, name: str, most: int | None, wanted: int) -> None:
        if most is not None and most < wanted and name not in self._told:
            self._told.add(name)
            _log.warning(
                "queue %r has max_deliveries=%r, so a task with retry=%r is tried less often: "
                "`shardq alter %s --max-deliveries %r`",
                name,
                most,
                wanted,
                name,
                wanted,
            )

    def find(self, task: str) -> StoredMessage | None:
        """The message of a task, or of a step of a workflow, if it waits or runs in its queue."""
        found = self.stored(task)
        return found if found is not None and _is_open(found) else None

    def stored(self, task: str) -> StoredMessage | None:
        """The message of a task as :meth:`find`, also one that was acked, or given up and holds up its group."""
        with suppress(QueueNotFound):
            if "#" in task:
                return self._step(task)
            if run_of(task):
                return self._queue_of(task).get(unique_key=key_of("again", task))
            return self._opened(task).get(task)
        return None

    def plan(self, workflow: str) -> Plan | None:
        """The plan of a workflow that has begun; None when it has not, or is over. One that was read is remembered."""
        workflow = in_run(workflow, 0)
        return self._plans.get(workflow) or self.kept_plan(workflow)

    def kept_plan(self, workflow: str) -> Plan | None:
        """The plan of a workflow as :meth:`plan`, asked of the store: one that was read before may be over by now."""
        workflow = in_run(workflow, 0)
        if (stored := self.results.plan(workflow)) is None:
            return None
        if len(self._plans) >= MOST_PLANS:  # other threads read it meanwhile
            self._plans = {}
        found = self._plans[workflow] = read_plan(stored)
        return found

    def planned(self, workflow: str) -> Plan | None:
        """The plan of a workflow, also of one that has not begun; None when there is no such workflow."""
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
            f"{queue!r} may have {self.settings(queue).max_message_bytes:,} (max_message_bytes): store what is large "
            "elsewhere and send where it is, or raise the limit"
        )

    def _unbegun(self, message: StoredMessage) -> Plan:
        try:
            if message.large is None:
                return read_plan(message.body)
            with self._opened(message.id).open(message.id) as file:
                return next(read_plans(file))[1]
        except (*UNREADABLE, StopIteration) as error:
            raise InvalidMessage(
                f"message {message.id} says that it is a workflow, and its body is no plan of one: {error}; it was "
                f"forged or damaged: `shardq remove {message.id}`"
            ) from error

    def find_steps(self, workflow: str, plan: Plan, numbers: Sequence[int]) -> dict[int, StoredMessage]:
        """The messages of those of these steps that wait or run, by number; some requests for all of them."""
        stored = self._stored_steps(workflow, plan, numbers)
        return {number: each for number, each in stored.items() if _is_open(each)}

    def _stored_steps(self, workflow: str, plan: Plan, numbers: Sequence[int]) -> dict[int, StoredMessage]:
        found: dict[int, StoredMessage] = {}
        by_queue: dict[str, list[int]] = {}
        for number in numbers:
            by_queue.setdefault(plan.steps[number].queue, []).append(number)
        for name, some in by_queue.items():
            with suppress(QueueNotFound):
                queue = self.client.queue(name)
                found |= self._in_places(queue, workflow, plan, some)
                found |= _under_keys(queue, workflow, [each for each in some if each not in found])
        return found

    def _step(self, step: str) -> StoredMessage | None:
        workflow, number = split_step(step)
        plan = self.plan(workflow)
        if plan is None or number >= len(plan.steps):
            return None
        return self._stored_steps(workflow, plan, [number]).get(number)

    def _in_places(
        self, queue: Queue, workflow: str, plan: Plan, numbers: Sequence[int]
    ) -> dict[int, StoredMessage]:
        """First steps that were sent under ids that are written down."""
        if not are_enough(plan.first) or all(plan.steps[number].after for number in numbers):
            return {}
        places = self._places_of(workflow)
        ids = {places[number].id: number for number in numbers if number in places}
        return {ids[identity]: message for identity, message in found_in(queue, list(ids)).items()}

    def _places_of(self, workflow: str) -> Places:
        """Where first steps are; what was read once stays true."""
        if (known := self._places.get(workflow)) is not None:
            return known
        if (found := self.results.places(workflow)) is None:
            return {}
        if len(self._places) >= MOST_PLANS:
            self._places = {}
        self._places[workflow] = found
        return found

    def _opened(self, task: str) -> Queue:
        return self.client.queue(MessageId.parse(task).shard.queue)

    def _queue_of(self, workflow: str) -> Queue:
        """The queue of the messages that begin a workflow, and its runs."""
        return self._opened(in_run(workflow, 0))

    def _producer(self, queue: str) -> Producer:
        return self._queue_and_producer(queue)[1]

    def _queue_and_producer(self, queue: str) -> tuple[Queue, Producer]:
        if (known := self._opened_queues.get(queue)) is not None:  # another thread may take it out
            return known
        with self._lock.get():
            if (known := self._opened_queues.get(queue)) is None:
                opened = self.queue(queue)
                if len(self._opened_queues) >= MOST_QUEUES:  # others may have deleted them
                    self._opened_queues, self._told = {}, set()
                known = self._opened_queues[queue] = opened, opened.producer()
        return known


def _is_open(message: StoredMessage) -> bool:
    """False for one that was acked, and for one that was given up and holds up its group."""
    return message.state is not EntryState.PROCESSED and message.blocked is None


def _under_keys(queue: Queue, workflow: str, numbers: Sequence[int]) -> dict[int, StoredMessage]:
    """The messages of steps that have unique keys."""
    keys = {step_id(workflow, number).key: number for number in numbers}
    holders = {
        key: each for key, each in zip(keys, holders_of(queue, list(keys)), strict=True) if each is not None
    }
    stored = found_in(queue, [each for each in holders.values() if each])
    found = {keys[key]: stored.get(each) or queue.get(unique_key=key) for key, each in holders.items()}
    return {number: each for number, each in found.items() if each is not None}


def _sent(producer: Producer, messages: Sequence[OutgoingMessage]) -> Sequence[str]:
    return [producer.send(messages[0])] if len(messages) == 1 else producer.send_many(messages)
