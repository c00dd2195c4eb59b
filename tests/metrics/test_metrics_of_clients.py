"""What a client counts and measures for Prometheus."""

from __future__ import annotations

import asyncio
import gc
import threading
from importlib.metadata import version

import pytest

import shardq
import shardq.aio
import shardq.tasks
from shardq.base.clock import SystemClock
from shardq.metrics import Metrics
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import ObservedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.worker import Worker
from tests.function_calls import function_calls
from tests.metrics.conftest import Scraped


def test_messages_are_counted_by_queue(client: shardq.Client, queue: shardq.Queue, value: Scraped) -> None:
    client.create_queue("mail").producer().send(b"one")
    queue.producer().send_many([b"1", b"2", b"3"])
    with queue.consumer() as consumer:
        first, second, third = consumer.receive(10)
        first.ack()
        second.release()
        third.dead_letter("worthless")
        consumer.receive(10).ack()
    queue.redrive()
    counted = {
        name: value(f"messages_{name}_total", queue="orders")
        for name in ("sent", "received", "redelivered", "acked", "released", "dead_lettered", "expired")
    }
    assert counted == {
        "sent": 3, "received": 4, "redelivered": 1, "acked": 2, "released": 1, "dead_lettered": 1, "expired": 0,
    }  # fmt: skip
    assert value("messages_redriven_total", queue="orders") == 1
    assert value("messages_sent_total", queue="mail") == 1
    assert value("build_info", version=version("shardq")) == 1


def test_expired_messages_and_lost_leases_are_counted(url: str, metrics: Metrics, value: Scraped) -> None:
    clock = ManualClock()
    with shardq.connect(url, observer=metrics, clock=clock) as client:
        queue = client.create_queue("orders", visibility_timeout=10)
        with queue.producer() as producer:
            producer.send(b"short", ttl=1)
            producer.send(b"long")
        clock.advance(5)
        with queue.consumer() as consumer, queue.consumer() as other:
            held = consumer.receive(1)
            clock.advance(60)
            other.receive(1).ack()
            with pytest.raises(shardq.LeaseLost):
                held.ack()
    assert value("messages_expired_total", queue="orders") == 1
    assert value("lease_lost_total", queue="orders") == 1


def test_the_wait_is_measured_from_when_a_message_is_due_until_its_first_delivery(
    url: str, metrics: Metrics, value: Scraped
) -> None:
    clock = ManualClock()
    with shardq.connect(url, observer=metrics, clock=clock) as client:
        queue = client.create_queue("orders")
        queue.producer().send_many([b"1", b"2"])
        queue.producer().send(b"later", delay=100)
        clock.advance(4)
        with queue.consumer() as consumer:
            consumer.receive(10).release()
            clock.advance(103)
            consumer.receive(10).ack()
    assert value("message_wait_seconds_count", queue="orders") == 3
    assert value("message_wait_seconds_sum", queue="orders") == 4 + 4 + 7
    assert value("message_wait_seconds_bucket", queue="orders", le="5.0") == 2


def test_requests_to_the_store_are_measured_and_errors_are_counted_by_their_code(
    url: str, metrics: Metrics, value: Scraped
) -> None:
    plan = FaultPlan(faults=(Fault("append", 1, FaultKind.LOST_RESPONSE),))
    store = FaultyStore(open_store(url, SystemClock()), plan)
    observed = ObservedStore(store, "sqlite", metrics)
    with shardq.Client(observed, observer=metrics) as client:
        client.create_queue("orders").producer().send(b"one")
    labels = {"store": "sqlite", "operation": "append"}
    assert value("operation_duration_seconds_count", **labels) == 2
    assert value("store_errors_total", **labels, reason=shardq.OutcomeUnknown.code) == 1
    assert value("store_retries_total") == 1


def test_handlers_are_measured_and_failures_are_counted_from_zero(
    queue: shardq.Queue, value: Scraped
) -> None:
    def handle(message: shardq.Message) -> None:
        match message.body:
            case b"bad":
                raise ValueError("bad")
            case b"later":
                raise shardq.Snooze(60)
            case b"worthless":
                raise shardq.Discard

    Worker(queue, print, by_batch=False, idle_exit=0).run()
    queue.producer().send(b"good")
    Worker(queue, handle, idle_exit=0).run()
    assert value("messages_failed_total", queue="orders") == 0
    queue.producer().send_many([b"good", b"bad", b"later", b"worthless"])
    Worker(queue, handle, idle_exit=0).run()
    counted = {
        name: value(f"messages_{name}_total", queue="orders")
        for name in ("worked", "failed", "snoozed", "discarded", "dead_lettered")
    }
    assert counted == {"worked": 2, "failed": 2, "snoozed": 1, "discarded": 1, "dead_lettered": 1}
    assert value("processing_duration_seconds_count", queue="orders") == 6


def test_durations_are_in_the_bucket_of_the_bound_that_they_do_not_exceed(
    metrics: Metrics, value: Scraped
) -> None:
    metrics.handled("orders", {"worked": 6}, [7_200.0, 0.001, 0.0, 0.0011, 3_600.0, 0.005])
    bounds = {"0.001": 2, "0.005": 4, "0.01": 4, "3600.0": 5, "+Inf": 6}
    found = {bound: value("processing_duration_seconds_bucket", queue="orders", le=bound) for bound in bounds}
    assert found == bounds
    assert value("processing_duration_seconds_sum", queue="orders") == pytest.approx(10_800.0071)


def test_measuring_calls_few_functions(url: str, client: shardq.Client, metrics: Metrics) -> None:
    with shardq.connect(url) as plain:
        (send, receive), (measured_send, measured_receive) = map(_least_calls, (plain, client))
    assert measured_send - send <= 7  # 6 on Python 3.11, and 20
    assert measured_receive - receive <= 22
    metrics.handled("orders", {"worked": 500}, [0.0] * 500)
    calls = function_calls(lambda: metrics.handled("orders", {"worked": 500}, [0.0, 0.02] * 250))
    assert calls <= 20  # for any number of calls of a handler


def _least_calls(client: shardq.Client) -> tuple[int, int]:
    """Return the calls of a send, and of receiving and acking a message, where nothing else is due."""
    queue = client.create_queue("singles", max_deliveries=None, exist_ok=True)
    with queue.producer() as producer, queue.consumer() as consumer:
        sends = min(function_calls(lambda: producer.send(b"one")) for _ in range(20))
        return sends, min(function_calls(lambda: consumer.receive(1).ack()) for _ in range(20))


def test_a_batch_is_one_call_and_its_messages_are_counted(queue: shardq.Queue, value: Scraped) -> None:
    queue.producer().send_many([b"x"] * 7)
    Worker(queue, lambda batch: None, by_batch=True, idle_exit=0).run()
    assert value("processing_duration_seconds_count", queue="orders") == 1
    assert value("messages_worked_total", queue="orders") == 7


def test_handlers_that_are_coroutines_are_measured(url: str, metrics: Metrics, value: Scraped) -> None:
    async def handle(message: shardq.aio.Message) -> None:
        if message.body == b"bad":
            raise ValueError("bad")

    async def work() -> None:
        async with shardq.aio.connect(url, observer=metrics) as client:
            queue = await client.create_queue("orders", max_deliveries=1)
            async with queue.producer() as producer:
                await producer.send_many([b"good", b"good", b"bad"])
            await shardq.aio.work(queue, handle, wait=0)

    asyncio.run(work())
    assert value("messages_worked_total", queue="orders") == 2
    assert value("messages_failed_total", queue="orders") == 1
    assert value("processing_duration_seconds_count", queue="orders") == 3


def test_coroutines_that_a_worker_calls_are_measured(queue: shardq.Queue, value: Scraped) -> None:
    async def handle(message: shardq.aio.Message) -> None:
        if message.body == b"bad":
            raise ValueError("bad")

    queue.alter(max_deliveries=1)
    queue.producer().send_many([b"good", b"good", b"bad"])
    Worker(queue, handle, idle_exit=0).run()
    assert value("messages_worked_total", queue="orders") == 2
    assert value("messages_failed_total", queue="orders") == 1
    assert value("processing_duration_seconds_count", queue="orders") == 3


def test_tasks_are_counted_by_name_and_outcome(url: str, client: shardq.Client, value: Scraped) -> None:
    tasks = shardq.tasks.Tasks(url)

    @tasks.task(retry=2, name="flaky")
    def flaky(number: int) -> None:
        if number:
            raise ValueError("flaky")

    @tasks.task(name="sound")
    def sound() -> None: ...

    tasks.bind(client)
    flaky.send(0)
    flaky.send(1)
    sound.send()
    while not value("tasks_total", task="flaky", outcome="failed"):
        shardq.tasks.TaskWorker(tasks, client, threads=0, idle_exit=0).run()
    counted = {
        (task, outcome): value("tasks_total", task=task, outcome=outcome)
        for task, outcome in (("flaky", "done"), ("flaky", "retried"), ("flaky", "failed"), ("sound", "done"))
    }
    assert counted == {
        ("flaky", "done"): 1, ("flaky", "retried"): 1, ("flaky", "failed"): 1, ("sound", "done"): 1,
    }  # fmt: skip
    assert value("task_duration_seconds_count", task="flaky") == 3


def test_counts_stay_when_a_client_is_gone(url: str, metrics: Metrics, value: Scraped) -> None:
    def send(times: int) -> None:
        for _ in range(times):
            with shardq.connect(url, observer=metrics) as client:
                client.create_queue("orders", exist_ok=True).producer().send(b"one")

    send(3)
    assert value("messages_sent_total", queue="orders") == 3
    gc.collect()
    assert value("messages_sent_total", queue="orders") == 3
    send(1)
    gc.collect()
    assert value("messages_sent_total", queue="orders") == 4


def test_counters_never_go_down_while_clients_come_and_go(url: str, metrics: Metrics, value: Scraped) -> None:
    shardq.connect(url).create_queue("orders")
    ended = threading.Event()

    def send() -> None:
        for _ in range(10):
            with shardq.connect(url, observer=metrics) as client:
                client.queue("orders").producer().send(b"one")
            gc.collect()
        ended.set()

    sender = threading.Thread(target=send)
    sender.start()
    seen = [0.0]
    while not ended.is_set():
        seen.append(value("messages_sent_total", queue="orders") or 0.0)
    sender.join()
    assert seen == sorted(seen)
    assert value("messages_sent_total", queue="orders") == 10


def test_a_client_adds_up_the_counters_of_its_queues(client: shardq.Client, queue: shardq.Queue) -> None:
    client.create_queue("mail").producer().send_many([b"1", b"2"])
    queue.producer().send(b"3")
    assert client.counters.sent == 3


def test_queues_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardq.core.context.counters.MOST_QUEUES", 2)
    metrics = Metrics()
    with shardq.connect("memory://", observer=metrics) as client:
        for name in ("one", "two", "three", "four"):
            client.create_queue(name, max_deliveries=None).producer().send(b"x")
    value = Scraped(metrics)
    assert value("messages_sent_total", queue="one") == 1
    assert value("messages_sent_total", queue="three") is None
    assert value("messages_sent_total", queue="_others") == 2


def test_what_a_forged_name_of_a_task_can_make_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardq.metrics.recorder.MOST_LABELS", 3)
    metrics = Metrics()
    for number in range(100):
        metrics.ran(f"task {number}", "done", 0.1)
    value = Scraped(metrics)
    assert len(metrics.measures().numbers) <= 4
    assert value("tasks_total", task="_others", outcome="_others") == 97


def test_the_requests_of_several_threads_are_all_counted_and_never_go_down() -> None:
    metrics, each = Metrics(), 3_000
    record = metrics.requests("sqlite", "append")

    def work() -> None:
        for _ in range(each):
            record(0.25)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen = [0]
    while any(thread.is_alive() for thread in threads):
        durations = metrics.measures().durations.get(("operation", "sqlite", "append"))
        seen.append(0 if durations is None else sum(durations.counts))
    durations = metrics.measures().durations["operation", "sqlite", "append"]
    assert seen == sorted(seen)
    assert (sum(durations.counts), durations.seconds) == (4 * each, 4 * each * 0.25)


def test_an_observer_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(
        shardq.InvalidSetting, match=r"observer='yes': give an instance .* shardq.metrics.Metrics\(\)"
    ):
        shardq.connect("memory://", observer="yes")  # type: ignore[arg-type]
