"""A client belongs to one loop of one process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import shardq
import shardq.aio
from shardq.aio.threads import Threads

FORKED = """
import asyncio, os, sys, shardq, shardq.aio

async def main():
    client = shardq.aio.connect(sys.argv[1])
    queue = await client.create_queue("jobs")
    child = os.fork()
    if child == 0:
        try:
            await queue.counts()
        except shardq.Closed as error:
            await client.close()
            os._exit(0 if "parent process" in str(error) else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    await queue.producer().send(b"x")
    await client.close()
    sys.exit(os.waitstatus_to_exitcode(status))

asyncio.run(main())
"""


def test_a_client_of_a_loop_that_was_closed_says_so(url: str) -> None:
    client = shardq.aio.connect(url)
    queue = asyncio.run(client.create_queue("jobs"))
    with pytest.raises(shardq.Closed, match=r"loop .* has been closed: connect with shardq\.aio\.connect"):
        asyncio.run(queue.counts())
    with pytest.raises(shardq.Closed, match="has been closed"):
        asyncio.run(queue.producer().send(b"x"))


def test_a_client_of_another_loop_says_so(url: str) -> None:
    async def main() -> None:
        async with shardq.aio.connect(url) as client:
            queue = await client.create_queue("jobs")

            def elsewhere() -> None:
                with pytest.raises(shardq.Closed, match="is another one"):
                    asyncio.run(queue.producer().send(b"x"))
                with pytest.raises(shardq.Closed, match="is another one"):
                    asyncio.run(queue.consumer().receive(wait=1))

            await asyncio.to_thread(elsewhere)
            assert (await queue.counts()).ready == 0

    asyncio.run(main())


def test_a_client_in_a_forked_child_says_so_and_that_of_the_parent_goes_on(url: str) -> None:
    subprocess.run([sys.executable, "-c", FORKED, url], check=True, timeout=60)


def test_what_is_used_after_a_close_says_so_and_who_waits_is_told(url: str) -> None:
    async def main() -> None:
        client = shardq.aio.connect(url)
        queue = await client.create_queue("jobs")
        producer, consumer = queue.producer(), queue.consumer()
        semaphore = await client.semaphore("one", permits=1)
        await semaphore.acquire()
        waiting = [
            asyncio.ensure_future(consumer.receive(wait=600)),
            asyncio.ensure_future(consumer.receive(wait=600)),
            asyncio.ensure_future(semaphore.acquire(600)),
        ]
        await asyncio.sleep(0.05)
        await client.close()
        await client.close()
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
        assert [type(each) for each in ended] == [shardq.Closed] * 3
        for call in (producer.send(b"x"), consumer.receive(), queue.counts(), client.queues()):
            with pytest.raises(shardq.Closed, match="closed"):
                await call

    asyncio.run(main())


def test_a_producer_and_a_consumer_that_were_closed_say_so(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        async with queue.producer() as producer, queue.consumer() as consumer:
            pass
        with pytest.raises(shardq.Closed, match="producer"):
            await producer.send(b"x")
        with pytest.raises(shardq.Closed, match="consumer"):
            await consumer.receive()

    run(main)


def test_a_client_whose_loop_was_closed_can_be_closed_in_another_one(
    url: str, begun_threads: Callable[..., list[threading.Thread]]
) -> None:
    client = shardq.aio.connect(url)

    async def use() -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send(b"x")

    async def close() -> None:
        await client.close()
        with pytest.raises(shardq.Closed, match="is closed"):
            await client.queues()

    asyncio.run(use())
    asyncio.run(close())
    assert not any(map(_stays, begun_threads("shardq-aio")))


def _stays(thread: threading.Thread) -> bool:
    thread.join(10)
    return thread.is_alive()


def test_a_consumer_that_is_closed_after_its_client_is_closed(url: str) -> None:
    async def main() -> None:
        client = shardq.aio.connect(url)
        async with (await client.create_queue("jobs")).consumer(keep_leases=True) as consumer:
            await consumer.receive()
            await client.close()
        with pytest.raises(shardq.Closed):
            await consumer.receive()

    asyncio.run(main())


class Slowly:
    """Bodies that are read in a thread which waits for them."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def bodies(self) -> Iterator[bytes]:
        self.begun.set()
        self.go_on.wait(30)
        yield b"x"


def test_what_no_thread_can_be_started_for_is_not_done_and_says_so(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = threading.Thread.start, 0

    def refuse(thread: threading.Thread) -> None:
        nonlocal refused
        if not thread.name.startswith("shardq-aio"):
            start(thread)
            return
        refused += 1
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with shardq.aio.connect(url) as client:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                for _ in range(2):
                    with pytest.raises(shardq.StoreUnavailable, match="can't start new thread"):
                        await client.create_queue("lost")
            queue = await client.create_queue("jobs")
            assert not await client.exists("lost")
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                before, producer = refused, queue.producer()
                feed = Slowly()
                sending = asyncio.ensure_future(producer.send_many(feed.bodies()))
                await asyncio.to_thread(feed.begun.wait, 30)
                counting = []
                while refused == before:
                    counting.append(asyncio.ensure_future(queue.counts()))
                    await asyncio.sleep(0)
                feed.go_on.set()
                assert len(await sending) == 1
                await asyncio.gather(*counting)  # in the thread that there is
            assert (await queue.counts()).ready == 1

    asyncio.run(main())


def test_no_more_threads_are_allowed_than_64(url: str) -> None:
    for threads in (0, 65, 1.5, "1"):
        with pytest.raises(shardq.InvalidSetting, match="threads"):
            shardq.aio.connect(url, threads=threads)  # type: ignore[arg-type]


def test_the_sync_client_does_not_load_asyncio() -> None:
    code = (
        "import sys, shardq; from shardq import *; client = connect('memory://'); "
        "client.create_queue('a').producer().send(b'x'); assert 'asyncio' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_transaction_of_sqlite_is_refused_with_a_remedy(url: str) -> None:
    async def main() -> None:
        async with shardq.aio.connect(url) as client:
            await client.create_queue("jobs")
            with pytest.raises(shardq.UnsupportedByStore, match="sync client"):
                async with client.transaction(connection=object()):
                    pass

    asyncio.run(main())


def test_objects_that_tasks_wait_with_say_so_in_another_loop_at_once(url: str) -> None:
    async def main() -> None:
        async with shardq.aio.connect(url) as client:
            queue, semaphore = await client.create_queue("jobs"), await client.semaphore("one", permits=1)
            consumer, permit = queue.consumer(), await semaphore.acquire()
            waiting = [
                asyncio.ensure_future(consumer.receive(wait=600)),
                asyncio.ensure_future(semaphore.acquire(600)),
            ]
            await asyncio.sleep(0)

            async def use() -> None:
                for call in (
                    lambda: consumer.receive(wait=600),
                    lambda: consumer.pop(wait=600),
                    lambda: anext(consumer.batches(1)),
                    semaphore.acquire,
                ):
                    with pytest.raises(shardq.Closed, match="is another one"):
                        await asyncio.wait_for(call(), 5)

            await asyncio.to_thread(asyncio.run, use())
            await queue.producer().send(b"x")
            await permit.release()
            await asyncio.wait_for(asyncio.gather(*waiting), 20)

    asyncio.run(main())


@pytest.mark.parametrize("apart", [False, True])
def test_a_thread_that_cannot_be_started_while_python_ends_raises_closed(
    monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(shardq.Closed, match="the main thread has ended"):
        Threads().submit(lambda: None, apart=apart)


ENDED = """
import asyncio, sys, threading, shardq, shardq.aio

async def use():
    async with shardq.aio.connect(sys.argv[1]) as client:
        queue = await client.create_queue("jobs")
        await shardq.aio.work(queue, handler, stop=asyncio.Event()) if sys.argv[2:] else None
        while True:
            await queue.counts()

async def handler(message): ...

def in_thread():
    try:
        asyncio.run(use())
    except shardq.Closed as error:
        print(error)

threading.Thread(target=in_thread).start()
"""


@pytest.mark.parametrize("works", [(), ("work",)])
def test_a_client_of_a_loop_that_outlives_the_main_thread_says_so(url: str, works: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDED, url, *works], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "the main thread has ended" in ended.stdout
