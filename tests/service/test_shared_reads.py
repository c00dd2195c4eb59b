"""Many viewers ask the store no more than one does, and all are told at once when to read again."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest

from shardq.errors import StoreUnavailable
from shardq.service import Service, ServiceOptions
from shardq.service.desk import StoreReads
from shardq.service.sharing import SharedReads, Ticks
from shardq.service.views import QueueRow


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Source:
    """What is read. Counts how often that is, and waits until it may answer."""

    def __init__(self) -> None:
        self.reads, self.may = 0, asyncio.Event()
        self.error: Exception | None = None

    async def read(self) -> int:
        self.reads += 1
        await self.may.wait()
        if self.error is not None:
            raise self.error
        return self.reads


def test_all_who_ask_at_the_same_time_wait_for_one_read() -> None:
    async def main() -> None:
        source, shared = Source(), SharedReads(1.5, Clock())
        waiting = [asyncio.ensure_future(shared.read("key", source.read)) for _ in range(50)]
        await asyncio.sleep(0)
        source.may.set()
        assert await asyncio.gather(*waiting) == [1] * 50

    asyncio.run(main())


def test_a_read_is_made_again_when_it_is_old_or_was_dropped() -> None:
    async def main() -> None:
        source, clock = Source(), Clock()
        source.may.set()
        shared = SharedReads(1.5, clock)
        assert [await shared.read("key", source.read) for _ in range(2)] == [1, 1]
        clock.now = 1.6
        assert await shared.read("key", source.read) == 2
        shared.forget()
        assert await shared.read("key", source.read) == 3
        assert await shared.read("other", source.read) == 4

    asyncio.run(main())


def test_a_viewer_that_leaves_ends_no_read_of_others() -> None:
    async def main() -> None:
        source, shared = Source(), SharedReads(1.5, Clock())
        first, second = (asyncio.ensure_future(shared.read("key", source.read)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        source.may.set()
        assert await second == 1
        assert source.reads == 1

    asyncio.run(main())


def test_answers_are_not_kept_for_longer_than_they_are_fresh() -> None:
    class Answer:
        pass

    async def main() -> None:
        clock = Clock()
        shared, answers = SharedReads(1.5, clock), weakref.WeakSet[Answer]()

        async def read() -> Answer:
            answer = Answer()
            answers.add(answer)
            return answer

        for key in range(100):
            await shared.read(key, read)
        assert len(answers) == 100
        clock.now = 1.6
        await shared.read("other", read)
        await asyncio.sleep(0)  # so that nothing is held by a task that has ended
        gc.collect()
        assert len(answers) == 1

    asyncio.run(main())


class _Counted(StoreReads):
    """A store whose queues are counted by the number of rounds; during each read somebody sends a message."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.rounds, self.busy = 0, True

    async def names(self) -> tuple[str, ...]:
        self.rounds += 1
        return ("a", "b", "c")

    async def row(self, queue: str) -> QueueRow:
        if self.busy:
            self.forget()
        await asyncio.sleep(0)
        return QueueRow(name=queue, ready=self.rounds)


def test_a_stream_of_actions_does_not_keep_the_queues_from_being_counted(url) -> None:
    async def main() -> None:
        store = _Counted(url)
        for _ in range(50):
            rows = await store.survey.rows(("a", "b", "c"), 0.1)
        assert set(rows) == {"a", "b", "c"}
        await store.close()

    asyncio.run(main())


def test_an_action_has_the_queues_counted_again_at_once(url) -> None:
    async def main() -> None:
        store = _Counted(url)
        store.busy = False
        seen = []
        for _ in range(20):
            rows = await store.survey.rows(("a",), 60)
            seen.append(rows["a"].ready)
            store.forget()
        assert seen == sorted(set(seen))
        await store.close()

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 20  # the rests would take 30 seconds


def test_a_queue_that_is_new_is_counted_without_the_others(url) -> None:
    async def main() -> None:
        store = _Counted(url)
        store.busy = False
        await store.survey.rows(("a",), 60)
        rows = await store.survey.rows(("a", "new"), 60)
        assert set(rows) == {"a", "new"}
        assert store.rounds == 1
        await store.close()

    asyncio.run(main())


def test_the_error_of_a_queue_that_cannot_be_counted_is_shown_without_passwords(url) -> None:
    class Refusing(_Counted):
        async def row(self, queue: str) -> QueueRow:
            raise StoreUnavailable(f"{queue} of mongodb://ada:secret@db/queues does not answer")

    async def main() -> None:
        store = Refusing(url)
        rows = await store.survey.rows(("a",), 60)
        assert rows["a"].error == "a of mongodb://...@db/queues does not answer"
        await store.close()

    asyncio.run(main())


def test_an_error_is_shared_and_the_next_read_may_succeed() -> None:
    async def main() -> None:
        source, clock = Source(), Clock()
        source.may.set()
        source.error = StoreUnavailable("away")
        shared = SharedReads(1.5, clock)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await shared.read("key", source.read)
        assert source.reads == 1
        source.error, clock.now = None, 2.0
        assert await shared.read("key", source.read) == 2

    asyncio.run(main())


def test_all_listeners_are_told_at_once_and_nothing_runs_without_any() -> None:
    async def main() -> None:
        ticks = Ticks(0.01)
        streams = [ticks.events() for _ in range(3)]
        assert [await anext(stream) for stream in streams] == [b"retry: 3000\n\n"] * 3
        tick = b'event: tick\ndata: {"number":1,"seconds":0.01,"share":0.01}\n\n'
        assert [await anext(stream) for stream in streams] == [tick] * 3
        for stream in streams:
            await stream.aclose()
        for _ in range(100):
            if len(asyncio.all_tasks()) == 1:
                break
            await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_stop_ends_every_stream() -> None:
    async def main() -> None:
        ticks = Ticks(60)
        stream = ticks.events()
        await anext(stream)
        ticks.stop()
        assert [event async for event in stream] == []
        assert ticks.full

    asyncio.run(asyncio.wait_for(main(), 5))


def test_two_viewers_of_a_page_ask_the_store_once(url) -> None:
    async def main() -> int:
        service: Any
        service, asked = Service(url, ServiceOptions(ui=True)), 0
        diagnose = service.store.client.diagnose

        async def counted() -> object:
            nonlocal asked
            asked += 1
            return await diagnose()

        service.store.client.diagnose = counted
        assert await asyncio.gather(*(_get(service, "/system") for _ in range(20))) == [200] * 20
        await service.close()
        return asked

    assert asyncio.run(main()) == 1


async def _get(service: Any, path: str) -> int:
    statuses: list[int] = []
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"localhost")],
    }

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await service(scope, receive, send)
    return statuses[0]
