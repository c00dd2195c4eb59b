"""Tasks are sent from coroutines as from plain functions, and no call blocks the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import WrappedStore
from shardq.tasks import Tasks, chain
from tests.quick_store import url

__all__ = ["url"]


class Slow(WrappedStore):
    """A store whose appends wait until they may go on."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url, SystemClock()))
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def call(self, method, do, *args, **kwargs):
        if method == "append":
            self.begun.set()
            self.go_on.wait(30)
        return do(*args, **kwargs)


@pytest.fixture
def store(url: str) -> Slow:
    return Slow(url)


def test_calls_workflows_and_many_calls_are_sent_and_awaited(url: str) -> None:
    tasks = Tasks(url)

    @tasks.task
    def add(first: int, second: int) -> int:
        return first + second

    async def main() -> list[int]:
        sent = [await add.asend(1, 2), await add.signature(3, 4).asend()]
        sent += await tasks.asend_many(add.signature(number, 0) for number in range(3))
        workflow = await chain(add.signature(1, 1), add.then(10)).asend()
        working = asyncio.to_thread(tasks.drain)
        report, *values = await asyncio.gather(working, *sent, workflow)
        assert report.worked >= 7
        return values

    assert asyncio.run(main()) == [3, 7, 0, 1, 2, 12]


def test_a_send_that_is_cancelled_is_carried_out_before_that_is_raised(store: Slow) -> None:
    tasks = Tasks()

    @tasks.task
    def nothing() -> None:
        pass

    async def main() -> None:
        first = await nothing.asend()
        store.begun.clear()
        store.go_on.clear()
        sending = asyncio.ensure_future(nothing.asend())
        await asyncio.to_thread(store.begun.wait, 30)
        sending.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not sending.done()
        store.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert first.state == "waiting"

    with shardq.Client(store) as client:
        tasks.bind(client)
        asyncio.run(main())
        assert tasks.drain().worked == 2


def test_an_error_of_a_send_is_raised_where_it_is_awaited(url: str) -> None:
    tasks = Tasks(url)

    @tasks.task
    def add(first: int) -> int:
        return first

    with pytest.raises(shardq.tasks.ArgumentsRejected):
        asyncio.run(add.asend(first=1, second=2))  # type: ignore[call-arg]
