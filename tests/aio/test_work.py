"""Handlers that are coroutines work the messages of a queue."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import shardq
import shardq.aio
from shardq.storage.opening import open_store
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock


def test_handlers_run_at_the_same_time_up_to_the_concurrency_and_their_messages_are_acked(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"%d" % number for number in range(100)])
        running = most = 0
        seen = []

        async def handler(message: shardq.aio.Message) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.005)
            seen.append(message.body)
            running -= 1

        assert await shardq.aio.work(queue, handler, concurrency=7, wait=0) == 100
        assert most == 7
        assert len(set(seen)) == 100
        counts = await queue.counts()
        assert (counts.ready, counts.in_flight) == (0, 0)

    run(main)


def test_what_a_handler_raises_or_returns_decides_what_becomes_of_its_message(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", retry_delay=60, max_deliveries=2)
        bodies = [
            b"fails",
            b"retries",
            b"snoozes",
            b"is given up",
            b"is discarded",
            b"works",
            b"is cancelled",
        ]
        await queue.producer().send_many(bodies)

        async def handler(message: shardq.aio.Message) -> object:
            match message.body:
                case b"fails":
                    raise ValueError(message.body)
                case b"retries":
                    raise shardq.Retry(after=600)
                case b"snoozes":
                    return shardq.Snooze(600)
                case b"is given up":
                    return shardq.DeadLetter("no use")
                case b"is discarded":
                    raise shardq.Discard
                case b"is cancelled":
                    raise asyncio.CancelledError
            return None

        assert await shardq.aio.work(queue, handler, wait=0) == 2
        now = await client.now()
        left = {message.body: message for message in await queue.peek()}
        assert set(left) == {b"fails", b"retries", b"snoozes", b"is cancelled"}
        assert {body: message.deliveries for body, message in left.items()} == {
            b"fails": 1,
            b"retries": 1,
            b"snoozes": 0,
            b"is cancelled": 1,
        }
        assert left[b"fails"].due <= now + timedelta(seconds=60)
        assert left[b"retries"].due > now + timedelta(seconds=500)
        (dead,) = await (await client.queue("jobs.dead")).peek()
        assert dead.body == b"is given up"

    run(main)


def test_a_message_that_fails_at_its_last_delivery_becomes_a_dead_letter(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", max_deliveries=1)
        await queue.producer().send(b"x")

        async def handler(message: shardq.aio.Message) -> None:
            raise ValueError("broken")

        assert await shardq.aio.work(queue, handler, wait=0) == 0
        (dead,) = await (await client.queue("jobs.dead")).peek()
        assert "broken" in str(dead.headers)

    run(main)


def test_the_messages_of_a_group_are_worked_in_order_and_none_overtakes_one_that_failed(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", retry_delay=0, max_retry_delay=0)
        await queue.producer().send_many([b"%d" % number for number in range(20)], group="one")
        seen = []
        failed = False

        async def handler(message: shardq.aio.Message) -> None:
            nonlocal failed
            await asyncio.sleep(0)
            if message.body == b"7" and not failed:
                failed = True
                raise ValueError
            seen.append(message.body)

        assert await shardq.aio.work(queue, handler, wait=1) == 20
        assert seen == [b"%d" % number for number in range(20)]

    run(main)


def test_a_stop_lets_handlers_end_and_releases_nothing_that_they_work_on(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 3)
        stop, begun = asyncio.Event(), asyncio.Event()

        async def handler(message: shardq.aio.Message) -> None:
            begun.set()
            await asyncio.sleep(0.05)

        working = asyncio.ensure_future(shardq.aio.work(queue, handler, stop=stop))
        await begun.wait()
        stop.set()
        assert await working == 3
        assert (await queue.counts()).in_flight == 0

    run(main)


@pytest.mark.parametrize("prefetch", [0, 10])
def test_a_cancelled_work_cancels_its_handlers_and_releases_all_messages_uncounted(run, prefetch) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 20)
        begun, cancelled = 0, 0
        all_begun = asyncio.Event()

        async def handler(message: shardq.aio.Message) -> None:
            nonlocal begun, cancelled
            begun += 1
            if begun == 5:
                all_begun.set()
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                cancelled += 1
                raise

        working = asyncio.ensure_future(shardq.aio.work(queue, handler, concurrency=5, prefetch=prefetch))
        await all_begun.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert (begun, cancelled) == (5, 5)
        assert (await queue.counts()).ready == 20
        batch = await queue.consumer().receive(20)
        assert {message.deliveries for message in batch} == {1}

    run(main)


def test_a_handler_may_settle_its_message(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await client.create_queue("others")
        await queue.producer().send_many([b"x"] * 2)

        async def handler(message: shardq.aio.Message) -> None:
            await message.forward("others")

        assert await shardq.aio.work(queue, handler, wait=0) == 2
        assert (await (await client.queue("others")).counts()).ready == 2

    run(main)


def test_what_makes_no_sense_is_refused(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")

        async def handler(message: shardq.aio.Message) -> None:
            """Do nothing."""

        for options in ({"concurrency": 0}, {"prefetch": -1}, {"wait": -1}, {"name": ""}):
            with pytest.raises(shardq.ShardqError):
                await shardq.aio.work(queue, handler, **options)
        with pytest.raises(shardq.InvalidSetting, match="async function"):
            await shardq.aio.work(queue, "handler")  # type: ignore[arg-type]
        await client.delete_queue("jobs")
        with pytest.raises(shardq.QueueNotFound):
            await shardq.aio.work(queue, handler)

    run(main)


def test_what_follows_a_message_that_its_handler_has_released_waits_with_it(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"%d" % number for number in range(5)], group="g")
        seen = []

        async def handler(message: shardq.aio.Message) -> None:
            seen.append(message.body)
            await message.release(delay=600)

        assert await shardq.aio.work(queue, handler, wait=0) == 0
        assert seen == [b"0"]
        assert (await queue.counts()).in_flight == 0

    run(main)


def test_a_group_is_worked_to_its_end_though_no_more_of_it_can_be_claimed_meanwhile(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"%d" % number for number in range(60)], group="g")
        seen = []

        async def handler(message: shardq.aio.Message) -> None:
            await asyncio.sleep(0)
            seen.append(message.body)

        assert await shardq.aio.work(queue, handler, concurrency=8, wait=0) == 60
        assert seen == [b"%d" % number for number in range(60)]

    run(main)


@pytest.mark.parametrize(("group", "held"), [(None, 1), ("g", 8)])
def test_a_stop_releases_what_was_claimed_ahead_and_does_not_wait_behind_its_group(run, group, held) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 8, group=group)
        stop, begun, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handler(message: shardq.aio.Message) -> None:
            begun.set()
            await go_on.wait()

        working = asyncio.ensure_future(
            shardq.aio.work(queue, handler, concurrency=1, prefetch=20, stop=stop)
        )
        await begun.wait()
        stop.set()
        async with asyncio.timeout(20):
            while (await queue.counts()).in_flight > held:
                await asyncio.sleep(0.01)
        go_on.set()
        assert await working == 1
        assert (await queue.counts()).in_flight == 0
        left = await queue.peek(20)
        assert [message.deliveries for message in left] == [0] * 7

    run(main)


async def _nothing() -> None:
    """Return nothing."""


@pytest.mark.parametrize(
    ("returned", "told"),
    [(lambda: shardq.Retry, "the class Retry"), (_nothing, "has not run yet")],
    ids=["class", "coroutine"],
)
def test_a_handler_that_returns_what_says_nothing_ends_the_work_and_its_message_stays(
    run, returned, told
) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs")
        await queue.producer().send_many([b"x"] * 3)

        async def handler(message: shardq.aio.Message) -> object:
            return returned()

        with pytest.raises(shardq.InvalidSetting, match=told):
            await shardq.aio.work(queue, handler, concurrency=1)
        counts = await queue.counts()
        assert (counts.ready, counts.in_flight) == (3, 0)

    run(main)


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()], ids=repr)
def test_an_exit_in_a_handler_is_a_failure_of_its_message(run, error: BaseException) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", retry_delay=60)
        await queue.producer().send_many([b"exits", b"works"])

        async def handler(message: shardq.aio.Message) -> None:
            if message.body == b"exits":
                raise error

        assert await shardq.aio.work(queue, handler, wait=0) == 1
        (left,) = await queue.peek()
        assert (left.body, left.deliveries) == (b"exits", 1)

    run(main)


@pytest.mark.parametrize("suspends", [True, False])
def test_a_handler_that_cancels_its_own_task_does_not_end_the_work(run, suspends: bool) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", max_deliveries=2, retry_delay=0.0)
        await queue.producer().send_many([b"cancels", b"works"])
        begun = 0

        async def handler(message: shardq.aio.Message) -> None:
            nonlocal begun
            if message.body == b"cancels":
                begun += 1
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                if suspends:
                    await asyncio.sleep(60)

        async with asyncio.timeout(60):
            worked = await shardq.aio.work(queue, handler, wait=0.1)
        assert worked == (1 if suspends else 2)
        assert begun == (2 if suspends else 1)
        counts = await queue.counts()
        assert (counts.ready, counts.in_flight) == (0, 0)

    run(main)


def test_a_handler_that_cancels_all_tasks_but_the_work_does_not_stop_it(run) -> None:
    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", max_deliveries=3, retry_delay=0.0)
        await queue.producer().send_many([b"cancels", *(b"%d" % number for number in range(30))])
        working, worked = asyncio.current_task(), []

        async def handler(message: shardq.aio.Message) -> None:
            if message.body == b"cancels":
                for task in asyncio.all_tasks() - {working, asyncio.current_task()}:
                    task.cancel()  # most of them before they have begun
            worked.append(message.body)

        async with asyncio.timeout(60):
            assert await shardq.aio.work(queue, handler, concurrency=4, prefetch=20, wait=0.2) == 31
        assert len(worked) == len(set(worked)) == 31
        counts = await queue.counts()
        assert (counts.ready, counts.in_flight) == (0, 0)

    run(main)


class CancellingStore(WrappedStore):
    """Has the tasks of a loop but one cancelled again and again while it settles messages."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.cancelled: list[str] = []

    def begin(self, working: asyncio.Task[Any]) -> None:
        """Begin to have tasks cancelled: all but this one."""
        self._loop, self._working = asyncio.get_running_loop(), working

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Have tasks cancelled before it acks or releases."""
        if method in ("acknowledge", "release"):
            self.cancelled.append(method)
            done = threading.Event()
            self._loop.call_soon_threadsafe(self._cancel, done, 10)
            assert done.wait(60)
        return do(*args, **kwargs)

    def _cancel(self, done: threading.Event, turns: int) -> None:
        for task in asyncio.all_tasks(self._loop) - {self._working}:
            task.cancel()
        if turns:
            self._loop.call_soon(self._cancel, done, turns - 1)
        else:
            done.set()


@pytest.mark.parametrize("fails", [False, True])
def test_work_settles_all_messages_and_notices_a_stop_though_all_other_tasks_are_cancelled_again_and_again(
    url: str, clock: ManualClock, fails: bool
) -> None:
    store = CancellingStore(open_store(url, clock))
    stop = asyncio.Event()

    async def main() -> int:
        async with shardq.aio.Client(shardq.Client(store)) as client:
            queue = await client.create_queue("jobs", max_deliveries=None, retry_delay=3_600)
            await queue.producer().send_many([b"x"] * 9)
            working = asyncio.current_task()
            assert working is not None
            store.begin(working)
            handled = set()

            async def handler(message: shardq.aio.Message) -> None:
                handled.add(message.id)
                if len(handled) == 9:
                    stop.set()
                if fails:
                    raise ValueError

            async with asyncio.timeout(30):  # it claimed nothing any more, and did not end
                return await shardq.aio.work(queue, handler, concurrency=2, prefetch=0, stop=stop)

    assert asyncio.run(main()) == (0 if fails else 9)
    assert store.cancelled
    with shardq.connect(url, clock=clock) as client:
        counts = client.queue("jobs").counts()
    assert (counts.ready, counts.delayed, counts.in_flight) == (0, 9 * fails, 0)


def test_work_raises_the_error_of_a_stop_that_another_loop_uses(url: str) -> None:
    stop = asyncio.Event()

    async def wait_for_a_moment() -> None:
        waiting = asyncio.ensure_future(stop.wait())
        await asyncio.sleep(0)
        waiting.cancel()

    async def main() -> None:
        async with shardq.aio.connect(url) as client, asyncio.timeout(30):
            queue = await client.create_queue("jobs")
            with pytest.raises(RuntimeError, match="different event loop"):
                await shardq.aio.work(queue, shardq.aio.Message.ack, stop=stop)

    asyncio.run(wait_for_a_moment())
    asyncio.run(main())


@pytest.mark.parametrize("hooks", [None, shardq.Hooks()])
def test_a_plain_function_as_a_handler_ends_the_work_and_its_message_stays(url: str, hooks) -> None:
    async def main() -> None:
        async with shardq.aio.connect(url, hooks=hooks) as client:
            queue = await client.create_queue("jobs", max_deliveries=1)
            await queue.producer().send_many([b"x"] * 3)
            called = []
            with pytest.raises(shardq.InvalidSetting, match="is not an async function"):
                await shardq.aio.work(queue, called.append, concurrency=1, wait=0)  # type: ignore[arg-type]
            counts = await queue.counts()
            assert (len(called), counts.ready, counts.in_flight) == (1, 3, 0)
            assert {message.deliveries for message in await queue.peek(3)} == {0}

    asyncio.run(main())


def test_an_error_that_cannot_tell_what_it_is_about_is_a_failure_like_any_other(
    run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "shardq")  # pytest-xdist cannot pass on what is no text

    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    async def main(client: shardq.aio.Client) -> None:
        queue = await client.create_queue("jobs", max_deliveries=2, retry_delay=0)
        await queue.producer().send(b"fails")

        async def handler(message: shardq.aio.Message) -> None:
            if message.deliveries == 2:
                raise FileNotFoundError("\udc80")
            raise SilentError

        async with asyncio.timeout(20):  # it was redelivered for ever
            assert await shardq.aio.work(queue, handler, wait=0.5) == 0
        (letter,) = await (await client.queue("jobs.dead")).peek()
        assert letter.headers["shardq-reason"] == "FileNotFoundError: \\udc80"

    run(main)


class LateCallbacks(asyncio.SelectorEventLoop):
    """Tells who waits for a task a while after it has ended."""

    def call_soon(self, callback, *args, context=None):  # type: ignore[override]
        if getattr(getattr(callback, "func", None), "__name__", "") == "_has_ended":
            return self.call_later(0.1, callback, *args, context=context)
        return super().call_soon(callback, *args, context=context)


def test_work_ends_when_its_last_handler_has_ended_just_before_a_read(url: str) -> None:
    async def main() -> int:
        async with shardq.aio.connect(url) as client:
            queue = await client.create_queue("jobs")
            await queue.producer().send(b"x")

            async def handler(message: shardq.aio.Message) -> None:
                pass

            return await asyncio.wait_for(shardq.aio.work(queue, handler, wait=0), 10)

    with asyncio.Runner(loop_factory=LateCallbacks) as runner:
        assert runner.run(main()) == 1


@pytest.mark.parametrize("group", [None, "g"])
def test_work_that_ends_with_all_tasks_of_its_loop_keeps_no_message(url: str, group: str | None) -> None:
    for turns in range(8):
        ended: list[str] = []
        working: list[asyncio.Future[int]] = []

        async def main(client: shardq.aio.Client, turns: int, ended: list[str], working: list[Any]) -> None:
            queue = await client.create_queue(f"jobs{turns}", visibility_timeout=3_600)
            await queue.producer().send_many([b"x"] * 20, group=group)
            enough = asyncio.Event()

            async def handler(message: shardq.aio.Message) -> None:
                ended.append(message.id)
                if len(ended) == 5:
                    enough.set()

            working.append(asyncio.ensure_future(shardq.aio.work(queue, handler, concurrency=2)))
            await enough.wait()
            for _ in range(turns):
                await asyncio.sleep(0)

        client = shardq.aio.connect(url)
        asyncio.run(main(client, turns, ended, working))  # which cancels the tasks that are left
        asyncio.run(client.close())
        with shardq.connect(url) as sync:
            counts = sync.queue(f"jobs{turns}").counts()
        assert (counts.ready, counts.in_flight) == (20 - len(ended), 0)
