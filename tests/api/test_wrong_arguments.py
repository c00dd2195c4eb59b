"""What is of the wrong type is refused at every public door with an error of shardq, and changes nothing.

The doors are all public methods and functions. Each argument is given values that do not fit its annotation.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, Unpack, get_args, get_origin, get_type_hints

import pytest

import shardq
import shardq.broadcast
import shardq.pipelines
import shardq.planning
import shardq.schedules
import shardq.tasks
import shardq.topics
import shardq.worker
from shardq.base.shard import INTERNAL
from shardq.base.texts import shown
from shardq.schedules import Schedules
from shardq.tasks import InlineTasks, Result, Signature, Task, Tasks, Workflow, WorkflowResult
from shardq.testing import ManualClock


class Vast:
    """What no annotation asks for, and what takes long to be written."""

    def __repr__(self) -> str:
        return "vast" * 10_000


ODD = (None, 5, "x", [], Vast())

CLASSES = (
    shardq.Client, shardq.Queue, shardq.Producer, shardq.Consumer, shardq.Batch, shardq.Message, shardq.Semaphore,
    shardq.topics.Topic, shardq.topics.Subscription, shardq.topics.Filter, Schedules, Tasks, Task, Signature, Result,
    Workflow, WorkflowResult, InlineTasks, shardq.broadcast.Broadcast, shardq.broadcast.Subscription,
    shardq.pipelines.Pipeline,
)  # fmt: skip

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    shardq.connect, shardq.MessageId.parse, shardq.Receipt.parse, shardq.Backoff, shardq.Retry, shardq.Snooze,
    shardq.Discard, shardq.DeadLetter, shardq.topics.Filter.of, shardq.tasks.chord, shardq.tasks.RetryPolicy,
    shardq.tasks.TaskWorker, shardq.tasks.TaskPool, InlineTasks, shardq.worker.Worker, shardq.worker.WorkerPool,
    shardq.worker.ShellCommand, shardq.pipelines.Pipeline, shardq.pipelines.PipelineWorker,
    shardq.pipelines.PipelinePool, shardq.pipelines.Split, shardq.pipelines.depths_of, shardq.pipelines.rates_of,
    shardq.planning.Wanted, shardq.planning.plan, shardq.planning.unit_costs, shardq.broadcast.Broadcast,
)  # fmt: skip

LEFT_OUT = {
    "Tasks.task(function)",  # None, where there are options
    "MessageId.parse(queue)", "Receipt.parse(queue)",  # an id is not of what is no queue
    "Workflow.plan(keep)", "Workflow.plan(name)", "Wanted(store)", "Batch.index(start)", "Batch.index(stop)",
}  # fmt: skip
"""Arguments that take more than they say, and those of what is public for other parts of shardq."""

ENGLISH = {
    "id", "to", "at", "by", "of", "every", "first", "start", "stop", "keep", "due", "after", "parts", "longest",
}  # fmt: skip
"""Arguments whose names an error may have without meaning them."""

TIMES = {"every", "at", "cron"}
"""Of a schedule: one of them is given."""


def work(number: Any = 1) -> Any:
    return number


class World:
    """One of everything that has public methods, on a clock that stands still, and arguments that are right."""

    def __init__(self) -> None:
        client = shardq.connect("memory://", clock=ManualClock(), retry_seconds=0)
        queue = client.create_queue("q", shards=1, time_shards=1, history_retention=60, keep_results=True)
        client.create_queue("other", shards=1, time_shards=1)
        queue.producer().send_many([b"one", b"two", b"three"])
        consumer = queue.consumer()
        batch = consumer.receive(2)
        topic = client.create_topic("news")
        client.schedules.create("nightly", queue="q", cron="@daily")
        tasks = Tasks()
        task = tasks.task(work)
        tasks.bind(client)
        sent = task.send(1)
        radio = shardq.broadcast.Broadcast(client, "radio")
        pipeline = shardq.pipelines.Pipeline("p").link("q", "other", work).output("other")
        self.client, self.queue = client, queue
        self.things: tuple[object, ...] = (
            client, queue, queue.producer(), consumer, batch, batch[0], client.semaphore("s", permits=2), topic,
            topic.subscribe("all"), shardq.topics.Filter.of("a", headers={"h": 1}), client.schedules, tasks, task,
            task.signature(1), sent, shardq.tasks.group(task.signature(1)),
            shardq.tasks.chain(task.signature(1)).send(), InlineTasks(tasks, client), radio, radio.subscribe(),
            pipeline,
        )  # fmt: skip
        self.good: dict[str, Any] = {
            "name": "new", "queue": "other", "source": "a", "target": "b", "function": work,
            "message_id": batch[0].id, "receipts": [], "seconds": 5.0, "reason": "why", "text": "text", "limit": 1,
            "body": b"x", "bodies": [b"x"], "path": __file__, "id": "nightly", "consumer": consumer.name,
            "stream": io.BytesIO(b"x"), "messages": [batch[0]], "to": "earliest", "retention": 60.0, "permits": 2,
            "headers": {}, "values": [1], "calls": [task.signature(1)], "task_id": sent.id, "schedule_id": "soon",
            "workflow_id": sent.id, "client": client, "tasks": tasks, "app": tasks, "pipeline": pipeline,
            "handler": work, "url": "sqlite:///never.db", "queues": ["q"], "parts": [task.signature(1)],
            "callback": task.then(), "command": "true", "rate": 5.0, "size": 5, "store": "sqlite",
            "wanted": shardq.planning.Wanted(5.0, 5), "connection": None, "first": 1.0, "longest": 5.0,
            "where": shardq.MessageFilter(), "pattern": "q*",
        }  # fmt: skip
        self.needed: dict[str, dict[str, Any]] = {
            "Client.semaphore": {"permits": 2},
            "Schedules.create": {"id": "new", "cron": "@daily"},
            "Signature.schedule": {"cron": "@daily"},
            "Task.schedule": {"cron": "@daily"},
            "TaskPool": {"tasks": "package.module"},
            "PipelinePool": {"pipeline": "package.module:pipeline"},
            "Worker": {"queue": queue},
        }
        self.before = self.state()

    def state(self) -> object:
        """All that a wrong call could change. It takes most of the time of these tests."""
        client = self.client
        names = [*client.queues(), *client.queues(INTERNAL)]
        stored = {name: client.queue(name).peek(100) for name in names if "/schedules/" not in name}
        return names, stored, client.schedules.list(), self.queue.settings, list(self.queue.history())


class Door(NamedTuple):
    """An argument of something public."""

    owner: type | None  # of the method; None: a function, or a class that is called
    called: Callable[..., Any]
    argument: str
    hint: object

    @property
    def name(self) -> str:
        return f"{self.called.__qualname__}({self.argument})"


def doors() -> Iterator[Door]:
    for owner in CLASSES:
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_"):
                yield from arguments(owner, member)
    for function in FUNCTIONS:
        yield from arguments(None, function)
    for each in arguments(Schedules, Schedules.create):
        if each.argument not in ("id", "queue", "exist_ok"):
            yield Door(each.owner, Schedules.alter, each.argument, each.hint)


def arguments(owner: type | None, called: Callable[..., Any]) -> Iterator[Door]:
    is_class = inspect.isclass(called) and inspect.isfunction(called.__init__)
    hints = get_type_hints(called.__init__ if is_class else called)
    for name, parameter in inspect.signature(called).parameters.items():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield Door(owner, called, name, hints.get(name, Any))
        elif get_origin(hints.get(name)) is Unpack:
            (keywords,) = get_args(hints[name])
            yield from (Door(owner, called, each, hint) for each, hint in get_type_hints(keywords).items())


def fits(value: object, hint: Any) -> bool:
    """True for a value of an annotation's type, and where it cannot be told."""
    if hint in (Any, object, bool) or isinstance(hint, TypeVar):
        return True
    if hint is NoneType:
        return value is None
    if get_origin(hint) in (Union, UnionType):
        return any(fits(value, each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    kind = get_origin(hint) or hint
    if getattr(kind, "_is_protocol", False):
        return False
    return isinstance(value, int | float if kind is float else kind)


DOORS = [
    door
    for door in doors()
    if door.name not in LEFT_OUT and not all(fits(odd, door.hint) for odd in ODD) and door.argument != "self"
]


@pytest.mark.parametrize(
    ("text", "argument", "named"),
    [
        ("the id is invalid: give it to nobody", "id", False),
        ("id='x' is not known", "id", True),
        ("give up at once", "to", False),
        ("invalid=5", "id", False),
        ("'to' is 5: give a place", "to", True),
        ("queue names are text", "name", True),
        ("renamed", "name", False),
    ],
)
def test_an_argument_is_named_only_by_its_own_name(text: str, argument: str, named: bool) -> None:
    assert names(text, argument) is named


@pytest.fixture(scope="session")
def world() -> World:
    return World()


@pytest.mark.parametrize("door", DOORS, ids=[door.name for door in DOORS])
def test_what_is_of_another_type_is_refused_by_name_and_changes_nothing(world: World, door: Door) -> None:
    for odd in ODD:
        if not fits(odd, door.hint):
            with pytest.raises(shardq.ShardqError) as caught:
                call(world, door, odd)
            text = str(caught.value)
            assert names(text, door.argument) or tells(text, odd)
            assert len(text) < 1_000
    assert world.state() == world.before


def names(text: str, argument: str) -> bool:
    """True when an error names an argument; one that is also a word of English as code: ``to=``, or in quotes."""
    if argument in ENGLISH:
        return re.search(rf"(?<!\w){argument}=|['`]{argument}['`]", text) is not None
    return re.search(rf"(?<!\w){argument}s?(?!\w)", text) is not None


def tells(text: str, odd: object) -> bool:
    """True when an error shows a value, and not only as a part of something else."""
    return re.search(rf"(?<!\w){re.escape(shown(odd))}(?!\w)", text) is not None


def call(world: World, door: Door, odd: object) -> None:
    called = door.called
    if door.owner is not None:
        called = getattr(next(each for each in world.things if type(each) is door.owner), called.__name__)
    given = {**world.needed.get(door.called.__qualname__, {})}
    if door.argument in TIMES:
        given.pop("cron", None)
    parameters = inspect.signature(called).parameters
    for name, parameter in parameters.items():
        is_named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if is_named and parameter.default is parameter.empty and name not in given:
            given[name] = world.good[name] if name != door.argument else odd
    given[door.argument] = odd
    first = [given.pop(name) for name, each in parameters.items() if each.kind is each.POSITIONAL_ONLY]
    found = called(*first, **given)
    if inspect.iscoroutine(found):
        found = asyncio.run(found)
    if isinstance(found, Task):
        found.send(1)  # which looks at the options of its message
    elif isinstance(found, Iterator):
        list(found)
    elif isinstance(found, AbstractContextManager):
        found.__enter__()
