"""A client belongs to one loop of one process."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import shardq
import shardq.aio

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
