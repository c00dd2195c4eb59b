"""Many viewers ask the store no more than one does, and all are told at once when to read again."""

from __future__ import annotations

import asyncio
import gc
import re
import selectors
import weakref
from collections.abc import Collection, Coroutine, Sequence
from itertools import pairwise
from typing import Any

import pytest

from shardq.errors import StoreUnavailable
from shardq.history.sampler import INTERVAL_SECONDS
from shardq.service import Service, ServiceOptions
from shardq.service.sharing import MOST_LISTENERS, MOST_OF_A_KEY, SharedReads, Ticks
from shardq.service.store_access import HISTORY_SECONDS, StoreReads
from shardq.service.views import QueueRow
from shardq.testing import ManualTimer


class Selector(selectors.DefaultSelector):
    """Waits for nothing: the time passes at once."""

    def __init__(self, timer: ManualTimer) -> None:
        super().__init__()
        self._timer = timer

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self._timer.advance(timeout)
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time passes as fast as its tasks allow."""

    def __init__(self) -> None:
        self._timer = ManualTimer()
        super().__init__(Selector(self._timer))

    def time(self) -> float:
        return self._timer()


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main)


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
        source, shared = Source(), SharedReads(1.5, ManualTimer())
        waiting = [asyncio.ensure_future(shared.read("key", source.read)) for _ in range(50)]
        await asyncio.sleep(0)
        source.may.set()
        assert await asyncio.gather(*waiting) == [1] * 50

    asyncio.run(main())


def test_a_read_is_made_again_when_it_is_old_or_was_dropped() -> None:
    async def main() -> None:
        source, clock = Source(), ManualTimer()
        source.may.set()
        shared = SharedReads(1.5, clock)
        assert [await shared.read("key", source.read) for _ in range(2)] == [1, 1]
        clock.advance(1.6)
        assert await shared.read("key", source.read) == 2
        shared.forget()
        assert await shared.read("key", source.read) == 3
        assert await shared.read("other", source.read) == 4

    asyncio.run(main())


def test_a_viewer_that_leaves_ends_no_read_of_others() -> None:
    async def main() -> None:
        source, shared = Source(), SharedReads(1.5, ManualTimer())
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
        clock = ManualTimer()
        shared, answers = SharedReads(1.5, clock), weakref.WeakSet[Answer]()

        async def read() -> Answer:
            answer = Answer()
            answers.add(answer)
            return answer

        for key in range(100):
            await shared.read(key, read)
        assert len(answers) == 100
        clock.advance(1.6)
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

    async def rows(self, queues: Sequence[str]) -> dict[str, QueueRow]:
        if self.busy:
            self.forget()
        await asyncio.sleep(0)
        return {queue: QueueRow(name=queue, ready=self.rounds) for queue in queues}


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
        seen, began = [], asyncio.get_running_loop().time()
        for _ in range(20):
            rows = await store.survey.rows(("a",), 60)
            seen.append(rows["a"].ready)
            store.forget()
        assert seen == sorted(set(seen))
        assert asyncio.get_running_loop().time() - began < 2  # the rests would take 30 seconds
        await store.close()

    run(main())


class _Slow(_Counted):
    """A store whose rounds take some time; it may be unreachable."""

    def __init__(self, url: str, took: float, *, busy: bool = False, fails: bool = False) -> None:
        super().__init__(url)
        self.took, self.busy, self.fails, self.began = took, busy, fails, list[float]()

    async def names(self) -> tuple[str, ...]:
        self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.took)
        if self.fails:
            raise StoreUnavailable("away")
        return await super().names()

    async def between(self, rounds: int) -> Collection[float]:
        """Return the seconds from each round to the next, while a page is open."""
        while len(self.began) <= rounds:
            await self.survey.rows(("a",), 0)
            await asyncio.sleep(self.took / 4)
            if self.busy:
                self.survey.hurry()
        return [after - before for before, after in pairwise(self.began)]


@pytest.mark.parametrize(
    ("took", "between", "by_actions"),
    [(0.001, 1.501, 0.051), (0.1, 20, 0.2), (1, 200, 2), (10, 310, 20)],
    ids=["many a minute", "half a hundredth", "still half a hundredth", "at most five minutes"],
)
def test_counting_all_queues_takes_little_of_the_time_and_half_of_it_while_actions_hurry_it(
    url, took: float, between: float, by_actions: float
) -> None:
    async def main() -> None:
        for busy, expected in ((False, between), (True, by_actions)):
            store = _Slow(url, took, busy=busy)
            assert await store.between(4) == pytest.approx([expected] * 4, rel=0.02)
            await store.close()

    run(main())


def test_an_unreachable_store_is_counted_again_after_15_seconds(url) -> None:
    async def main() -> None:
        store = _Slow(url, 10, fails=True)
        assert await store.between(3) == pytest.approx([10 + 15] * 3)
        await store.close()

    run(main())


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
    class Refusing(StoreReads):
        def count(self, name: str) -> QueueRow:
            if name != "a":
                return super().count(name)
            raise StoreUnavailable(f"{name} of mongodb://ada:secret@db/queues does not answer")

    async def main() -> None:
        store = Refusing(url)
        for name in ("a", "b"):
            store.sync.create_queue(name)
        rows = await store.survey.rows(("a", "b"), 60)
        assert rows["a"].error == "a of mongodb://...@db/queues does not answer"
        assert rows["b"].error is None
        assert await store.rows(("a", "never", "b")) == rows
        await store.close()

    asyncio.run(main())


def test_an_error_is_shared_and_the_next_read_may_succeed() -> None:
    async def main() -> None:
        source, clock = Source(), ManualTimer()
        source.may.set()
        source.error = StoreUnavailable("away")
        shared = SharedReads(1.5, clock)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await shared.read("key", source.read)
        assert source.reads == 1
        source.error = None
        clock.advance(2)
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
        assert ticks.is_full()

    asyncio.run(asyncio.wait_for(main(), 5))


def test_streams_that_begin_together_do_not_exceed_the_bound() -> None:
    async def main() -> int:
        ticks = Ticks(60)
        assert not ticks.is_full()
        streams = [ticks.events() for _ in range(MOST_LISTENERS + 5)]  # all were let in before one began
        firsts = [await anext(stream, None) for stream in streams]
        ticks.stop()
        return sum(first is not None for first in firsts)

    assert asyncio.run(asyncio.wait_for(main(), 30)) == MOST_LISTENERS


def test_one_key_does_not_take_the_streams_of_all_others() -> None:
    async def main() -> list[int]:
        ticks, taken = Ticks(60), []
        for key in ("noisy", "quiet", None):
            streams = [ticks.events(key) for _ in range(MOST_LISTENERS)]
            firsts = [await anext(stream, None) for stream in streams]
            taken.append(sum(first is not None for first in firsts))
        ticks.stop()
        return taken

    noisy, quiet, without = asyncio.run(asyncio.wait_for(main(), 30))
    assert noisy == quiet == MOST_OF_A_KEY < MOST_LISTENERS / 2
    assert without == MOST_LISTENERS - noisy - quiet


def test_a_stream_ends_at_the_next_tick_when_its_key_was_revoked() -> None:
    async def main() -> list[bytes]:
        ticks, known = Ticks(0.01), True
        stream = ticks.events("ops", lambda: known)
        events = [await anext(stream), await anext(stream)]
        known = False
        events += [event async for event in stream]
        assert not ticks.is_full("ops")
        return events

    first, tick = asyncio.run(asyncio.wait_for(main(), 30))
    assert first == b"retry: 3000\n\n"
    assert tick.startswith(b"event: tick\n")


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


@pytest.mark.parametrize("later", [0.01, 1, 7.5, 14.5])
def test_two_viewers_of_charts_have_the_history_read_as_often_as_one(later: float) -> None:
    async def reads_by(moments: Sequence[float]) -> int:
        timer, reads = ManualTimer(), 0
        shared, start = SharedReads(HISTORY_SECONDS, timer), timer()

        async def read() -> None:
            nonlocal reads
            reads += 1
            timer.advance(0.002)  # as long as it takes

        for moment in sorted(moments):
            timer.advance(max(0.0, start + moment - timer()))
            await shared.read("history", read)
        return reads

    asks = [number * INTERVAL_SECONDS for number in range(40)]
    one = asyncio.run(reads_by(asks))
    two = asyncio.run(reads_by([*asks, *(ask + later for ask in asks)]))
    assert one == len(asks)  # each sample is shown
    assert two <= one + 1


def test_viewers_of_a_page_agree_on_how_long_it_takes_to_read(url) -> None:
    async def main() -> None:
        service: Any = Service(url, ServiceOptions(ui=True))
        diagnose = service.store.client.diagnose

        async def slow() -> object:
            await asyncio.sleep(0.05)
            return await diagnose()

        service.store.client.diagnose = slow
        told = []
        for _ in range(2):  # the second viewer is shown what was read for the first one
            body: list[bytes] = []
            assert await _get(service, "/system", body) == 200
            told += re.findall(r'data-took="([^"]+)"', b"".join(body).decode())
        assert told[0] == told[1]
        assert float(told[0]) > 0.04
        await service.close()

    asyncio.run(main())


def test_a_request_that_is_cancelled_as_the_service_ends_says_so(url) -> None:
    async def main() -> int:
        service: Any = Service(url, ServiceOptions(ui=True))
        asked = asyncio.Event()

        async def wait() -> None:
            asked.set()
            await asyncio.Event().wait()

        service.store.client.diagnose = wait
        task = asyncio.ensure_future(_get(service, "/api/v1/system"))
        await asked.wait()
        service.stop()
        task.cancel()
        status = await task
        await service.close()
        return status

    assert asyncio.run(asyncio.wait_for(main(), 30)) == 503


async def _get(service: Any, path: str, body: list[bytes] | None = None) -> int:
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
        elif body is not None:
            body.append(message.get("body", b""))

    await service(scope, receive, send)
    return statuses[0]
