"""Calling a function may run nothing of it: no message counts as worked because of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq import Batch, Message, Queue
from shardq.base.callables import function_named
from shardq.worker import Worker, WorkerPool


async def asynchronous(*_: object) -> None:
    pass


async def asynchronous_generator(*_: object) -> AsyncIterator[None]:
    yield


def generator(*_: object) -> Iterator[None]:
    yield


class Handlers:
    async def method(self, *_: object) -> None:
        pass

    async def __call__(self, *_: object) -> None:
        pass


REFUSED: dict[str, Callable[..., Any]] = {
    "async generator": asynchronous_generator,
    "generator": generator,
    "partial of a generator": partial(generator, 1),
}
AWAITED: dict[str, Callable[..., Any]] = {
    "async function": asynchronous,
    "async method": Handlers().method,
    "async __call__": Handlers(),
    "partial": partial(asynchronous, 1),
    "partial of a partial of a callable": partial(partial(Handlers(), 1), 2),
}
LAZY: dict[str, Callable[..., Any]] = {f"returns the result of: {name}": lambda *args, made=made: made(*args)
                                       for name, made in {**REFUSED, **AWAITED}.items()}  # fmt: skip


def make_future(_: object) -> Any:
    loop = asyncio.new_event_loop()
    try:
        return loop.create_future()
    finally:
        loop.close()


@pytest.mark.parametrize("handler", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("by_batch", [False, True])
def test_a_worker_refuses_a_handler_that_a_call_does_not_run(
    queue: Queue, handler: Callable[..., Any], by_batch: Any
) -> None:
    with pytest.raises(shardq.InvalidSetting, match=r"function without yield|plain function"):
        Worker(queue, handler, by_batch=by_batch)


@pytest.mark.parametrize("handler", AWAITED.values(), ids=AWAITED)
@pytest.mark.parametrize("by_batch", [False, True])
def test_a_worker_awaits_a_handler_that_is_async(
    queue: Queue, handler: Callable[..., Any], by_batch: Any
) -> None:
    queue.producer().send(b"x")
    assert Worker(queue, handler, by_batch=by_batch, idle_exit=0).run().worked == 1


def test_a_pool_refuses_it_before_it_starts_a_process(url: str) -> None:
    with pytest.raises(shardq.InvalidSetting, match="generator is a generator"):
        WorkerPool(url, "jobs", generator)


def test_a_pool_ends_with_the_error_when_the_handler_is_named(url: str, queue: Queue, handlers: str) -> None:
    queue.producer().send(b"x")
    with pytest.raises(shardq.InvalidSetting, match="is a generator"):
        WorkerPool(url, "jobs", f"{handlers}:generator", idle_exit=0).run()
    assert queue.counts().ready == 1


@pytest.mark.parametrize("handler", [*LAZY.values(), make_future], ids=[*LAZY, "returns a future"])
@pytest.mark.parametrize("by_batch", [False, True])
def test_what_a_handler_returns_unrun_acks_nothing_and_ends_the_worker(
    queue: Queue, handler: Callable[..., Any], by_batch: Any
) -> None:
    queue.producer().send_many([b"1", b"2", b"3"])
    worker = Worker(queue, handler, by_batch=by_batch, idle_exit=0)
    with pytest.raises(shardq.InvalidSetting, match="has not run yet"):
        worker.run()
    assert queue.counts().ready == 3
    assert worker.report.worked == 0


def test_functions_that_run_when_they_are_called_are_taken(queue: Queue) -> None:
    class Plain:
        def __call__(self, batch: Batch) -> list[bytes]:
            return [message.body for message in batch]

    async def work() -> None:
        pass

    def runs(message: Message) -> None:
        asyncio.run(work())

    queue.producer().send(b"x")
    assert Worker(queue, Plain(), by_batch=True, idle_exit=0).run().worked == 1
    queue.producer().send(b"x")
    assert Worker(queue, runs, idle_exit=0).run().worked == 1
    queue.producer().send(b"x")
    assert Worker(queue, print, idle_exit=0).run().worked == 1


def test_a_client_refuses_hooks_that_a_call_does_not_run(tmp_path: Path) -> None:
    class Audit(shardq.Hooks):
        async def before_ack(self, *_: object) -> None:  # type: ignore[override]
            pass

    with pytest.raises(shardq.InvalidSetting, match="hook"):
        shardq.connect(f"sqlite:///{tmp_path}/queue.db", hooks=Audit())


@pytest.mark.parametrize("hooks", [print, shardq.Hooks, object(), "hooks"])
def test_a_client_refuses_what_is_no_instance_of_hooks(tmp_path: Path, hooks: Any) -> None:
    with pytest.raises(shardq.InvalidSetting, match="instance"):
        shardq.connect(f"sqlite:///{tmp_path}/queue.db", hooks=hooks)


@pytest.mark.parametrize("handler", [None, 5, b"module:function"])
def test_what_cannot_be_called_is_refused_before_it_fails_every_message(queue: Queue, handler: Any) -> None:
    with pytest.raises(shardq.InvalidSetting, match="give a function"):
        Worker(queue, handler)
    with pytest.raises(shardq.InvalidSetting, match="give a function"):
        WorkerPool("sqlite:///queue.db", queue.name, handler)


def test_a_worker_takes_no_name_of_a_function(queue: Queue) -> None:
    with pytest.raises(shardq.InvalidSetting, match="give a function"):
        Worker(queue, "json:loads")  # type: ignore[call-overload]


class CodecOfALambda:
    def __init__(self) -> None:
        self.encode = self.decode = lambda body: body


@pytest.mark.parametrize(
    "options", [{}, {"codec": CodecOfALambda()}, {"on_error": lambda _message, _error: None}]
)
def test_a_pool_refuses_what_cannot_be_sent_to_its_processes(options: dict[str, Any]) -> None:
    handler: Any = print if options else lambda message: message
    with pytest.raises(shardq.InvalidSetting, match="module:function"):
        WorkerPool("sqlite:///queue.db", "orders", handler, **options)


@pytest.mark.parametrize("name", ["nowhere:change", "os:nothing_there", "os:sep", "nowhere", "os:"])
def test_a_name_without_a_function_is_refused_and_the_error_says_what_it_is_for(name: str) -> None:
    with pytest.raises(shardq.InvalidSetting, match=f"the change {name!r}"):
        function_named("the change", name)
