"""Receivers that wait hold no connection of the store, and those of a loop no thread."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType

import pytest

import shardq
import shardq.aio
from shardq.storage import listening

RECEIVERS, THREADS = 200, 2
IDLE = (
    20  # files of free connections: as many as calls at a time have needed, and SQLite opens three for each
)
FOLDER = Path("/proc/self/fd")

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="open files are counted on Linux only")


@pytest.fixture
def queue(any_url: str) -> Iterator[str]:
    """The name of an empty queue."""
    name = f"fresh{os.urandom(4).hex()}"
    with shardq.connect(any_url) as client:
        client.create_queue(name, shards=1, time_shards=1)
        yield name
        client.delete_queue(name)


def open_files() -> int:
    """Count the open files and sockets of this process."""
    return len(list(FOLDER.iterdir()))


def frames_of(thread: threading.Thread) -> Iterator[FrameType]:
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_busy(thread: threading.Thread) -> bool:
    """True while a thread of the pool makes a call of shardq."""
    return any(frame.f_globals.get("__name__", "").startswith("shardq.") for frame in frames_of(thread))


def waits(thread: threading.Thread) -> bool:
    """True while a thread waits for the store's signals, or for its next poll."""
    return any(frame.f_globals.get("__name__") == listening.__name__ for frame in frames_of(thread))


def test_receivers_of_a_loop_hold_neither_a_thread_nor_a_connection_while_they_wait(
    any_url: str, queue: str, begun_threads: Callable[..., list[threading.Thread]]
) -> None:
    async def main() -> None:
        async with shardq.aio.connect(any_url, threads=THREADS) as client:
            opened = await client.queue(queue)
            asked: set[int] = set()

            async def receive(number: int) -> bytes:
                asked.add(number)
                return (await opened.consumer().receive(wait=600)).bodies[0]

            async def all_wait(tasks: Collection[asyncio.Task[bytes]]) -> None:
                await asyncio.sleep(0)  # each asks the pool for a thread in its first step
                while len(asked) < len(tasks) or any(map(is_busy, begun_threads("shardq-aio"))):
                    await asyncio.sleep(0.005)
                assert not any(task.done() for task in tasks)

            waiting = [asyncio.create_task(receive(0))]
            await all_wait(waiting)
            files = open_files()
            waiting += [asyncio.create_task(receive(number)) for number in range(1, RECEIVERS)]
            await all_wait(waiting)
            assert open_files() <= files + IDLE
            assert len(begun_threads("shardq-aio")) <= THREADS
            async with opened.producer() as producer:
                await producer.send(b"x")
            done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result() for task in done] == [b"x"]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    asyncio.run(main())


def test_threads_that_wait_hold_no_connection(any_url: str, queue: str) -> None:
    with shardq.connect(any_url) as client:
        consumers = [client.queue(queue).consumer() for _ in range(RECEIVERS)]
        threads: list[threading.Thread] = []
        files = 0
        for consumer in consumers:
            threads.append(threading.Thread(target=consumer.receive, kwargs={"wait": 600.0}, daemon=True))
            threads[-1].start()
            while not waits(threads[-1]):
                time.sleep(0.001)
            files = files or open_files()
        assert all(thread.is_alive() for thread in threads)
        assert open_files() <= files + IDLE
        for consumer in consumers:
            consumer.stop()
        for thread in threads:
            thread.join()
