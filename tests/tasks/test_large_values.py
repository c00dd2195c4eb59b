"""Values that are too large for a message: of tasks, of steps, and what steps take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import shardq
from shardq.errors import StoreUnavailable
from shardq.storage.opening import open_store
from shardq.tasks import (
    ResultMissing,
    ResultRejected,
    TaskFailed,
    Tasks,
    TaskWorker,
    chain,
    chord,
    current_task,
    group,
    result_backend,
    workflow,
)
from shardq.testing import ManualClock, WrappedStore

LARGE = 1_500_000  # bytes; more than a message may have


class Texts:
    """Tasks that make and take large texts."""

    def __init__(self, tasks: Tasks) -> None:
        self.ran = Counter[str]()

        @tasks.task
        def make(size: int) -> bytes:
            self.ran["make"] += 1
            return bytes(size)

        @tasks.task
        def more(text: bytes, by: bytes = b"") -> bytes:
            self.ran["more"] += 1
            return text + by

        @tasks.task
        def size(texts: list[bytes]) -> list[int]:
            self.ran["size"] += 1
            return [len(each) for each in texts]

        self.make, self.more, self.size = make, more, size


@pytest.fixture
def texts(tasks: Tasks) -> Texts:
    return Texts(tasks)


def test_a_task_may_return_more_than_a_message_has(
    tasks: Tasks, texts: Texts, client: shardq.Client, clock: ManualClock
) -> None:
    kept = texts.make.send(LARGE)
    forgotten = texts.make.send(LARGE)
    tasks.drain()
    assert (kept.state, len(kept.get(timeout=0))) == ("done", LARGE)
    forgotten.forget()
    clock.advance(2 * 3_600)
    tasks.task_client.results.remove_old()
    client.queue(result_backend.RESULTS).sweep()
    with pytest.raises(ResultMissing):
        kept.get(timeout=0)
    assert client.queue(result_backend.RESULTS).peek(10) == []


@pytest.mark.parametrize("threads", [0, 2])
def test_steps_take_values_and_lists_that_are_too_large_for_their_messages(
    tasks: Tasks, texts: Texts, client: shardq.Client, threads: int
) -> None:
    one = chain(texts.make.signature(LARGE), texts.more.then(b"more"), texts.more.then(b"and")).send()
    many = chord([texts.make.signature(300_000) for _ in range(5)], texts.size.then()).send()
    both = chord([texts.make.signature(LARGE), texts.make.signature(3)], texts.size.then()).send()
    TaskWorker(tasks, client, threads=threads, idle_exit=0).run()
    assert len(one.get(timeout=0)) == LARGE + 7
    assert many.get(timeout=0) == [300_000] * 5
    assert both.get(timeout=0) == [LARGE, 3]
    assert texts.ran == {"make": 8, "more": 2, "size": 2}


def test_the_first_steps_of_buckets_take_a_large_value_too(
    tasks: Tasks, texts: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)
    parts = group(chain(texts.more.then(b"x"), texts.more.then(b"y")) for _ in range(5))
    fitting = chain(texts.make.signature(600_000), group(texts.more.then(b"x" * 600_000) for _ in range(3)))
    result = chain(texts.make.signature(LARGE), parts, texts.size.then()).send()
    other = chain(fitting, texts.size.then()).send()
    tasks.drain()
    assert result.get(timeout=0) == [LARGE + 2] * 5
    assert other.get(timeout=0) == [1_200_000] * 3
    assert texts.ran["more"] == 13


def test_a_workflow_that_is_retried_takes_the_large_values_of_the_run_before(
    tasks: Tasks, texts: Texts
) -> None:
    broken = [True]

    @tasks.task(retry=1)
    def sizes(all_of_them: list[bytes]) -> list[int]:
        if broken:
            raise ValueError("not yet")
        return [len(each) for each in all_of_them]

    result = chord([texts.make.signature(LARGE) for _ in range(2)], sizes.then()).send()
    tasks.drain()
    assert result.state == "failed"
    broken.clear()
    assert result.retry()
    tasks.drain()
    assert (result.get(timeout=0), texts.ran["make"]) == ([LARGE, LARGE], 2)


def test_a_queue_of_small_messages_has_steps_that_take_large_values(
    tasks: Tasks, texts: Texts, client: shardq.Client
) -> None:
    client.create_queue("small", max_message_bytes=3_000)
    size = texts.size.options(queue="small")
    result = chord([texts.make.signature(900) for _ in range(5)], size.then()).send()
    tasks.drain(queues=["tasks", "small"])
    assert result.get(timeout=0) == [900] * 5
    too_large = texts.more.options(queue="small")
    with pytest.raises(
        shardq.MessageTooLarge, match=r"arguments of task 'more' have .* queue 'small' .* store"
    ):
        too_large.send(bytes(4_000))


def test_what_is_too_large_to_be_kept_or_taken_is_a_failure_that_names_the_remedy(
    tasks: Tasks, texts: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.tasks.steps.MAX_RESULT_BYTES", 2 * LARGE)

    @tasks.task(retry=1)
    def told() -> None:
        current_task().progress("x" * LARGE)

    result = chord([texts.make.signature(LARGE) for _ in range(2)], texts.size.then()).send()
    telling = told.send()
    tasks.drain()
    with pytest.raises(TaskFailed, match=r"step 'size' takes a list .* let them return less"):
        result.get(timeout=0)
    with pytest.raises(TaskFailed, match=r"progress of task 'told' has .* note less") as failed:
        telling.get(timeout=0)
    assert failed.value.failure.kind == ResultRejected.__name__


class LooksAway(WrappedStore):
    """Answers nobody who asks what stands of tasks, while it is ``away``."""

    away = False

    def compare_and_set_keys(self, queue: str, *args: Any) -> Any:
        if self.away and queue == result_backend.RESULTS:
            raise StoreUnavailable("the store of this test is away")
        return super().compare_and_set_keys(queue, *args)


@pytest.fixture
def store(url: str, clock: ManualClock) -> Iterator[LooksAway]:
    store = LooksAway(open_store(url, clock))
    yield store
    store.close()


def test_a_store_that_is_away_before_a_step_begins_is_no_failure_of_the_step(
    store: LooksAway, clock: ManualClock
) -> None:
    with shardq.Client(store, retry_seconds=0) as client:
        tasks = Tasks()
        tasks.bind(client)

        @tasks.task(retry=1, delay=60)
        def once(number: int) -> int:
            return number

        result = chain(once.signature(1)).send()
        once.options(delay=0).send(2)  # so that there are results to be looked for
        tasks.drain()
        store.away = True
        clock.advance(61)
        assert tasks.drain().snoozed == 1
        store.away = False
        clock.advance(6)
        assert tasks.drain().worked == 1
        assert result.get(timeout=0) == 1
