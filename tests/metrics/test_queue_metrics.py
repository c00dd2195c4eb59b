"""The state of queues for Prometheus: sampled in the background, never by a scrape."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

import shardq
from shardq.base.clock import SystemClock
from shardq.cli.main import main
from shardq.metrics import QueueMetrics
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, ManualTimer
from tests.metrics.conftest import Scraped


def test_depth_age_lateness_and_consumers_of_queues_are_shown(url: str) -> None:
    clock = ManualClock()
    with shardq.connect(url, clock=clock) as client:
        queue = client.create_queue("orders", history_retention=60)
        with queue.producer() as producer:
            producer.send_many([b"1", b"2", b"3"])
            clock.advance(10)
            producer.send(b"4", delay=100)
        with queue.consumer() as consumer:
            first, _ = consumer.receive(2)
            first.ack()
            collector = QueueMetrics(client)
            collector.sample()
        value = Scraped(collector)
    depth = {
        state: value("queue_messages", queue="orders", state=state)
        for state in ("ready", "delayed", "in_flight", "processed")
    }
    assert depth == {"ready": 1, "delayed": 1, "in_flight": 1, "processed": 1}
    assert value("queue_late_seconds", queue="orders") == 10
    assert value("queue_oldest_message_age_seconds", queue="orders") == 10
    assert value("consumers", queue="orders") == 1
    assert value("shards_in_use", queue="orders") == 2
    assert value("queue_messages", queue="orders.dead", state="ready") == 0
    assert value("store_up") == 1


def test_the_lag_of_topics_and_subscriptions_is_shown(url: str) -> None:
    clock = ManualClock()
    with shardq.connect(url, clock=clock) as client:
        topic = client.create_topic("orders")
        topic.subscribe("mail")
        topic.publish_many([b"1", b"2"])
        topic.relay()
        topic.publish(b"3")
        clock.advance(7)
        collector = QueueMetrics(client)
        collector.sample()
    value = Scraped(collector)
    assert value("subscription_lag_messages", topic="orders", subscription="mail") == 2
    assert value("topic_lag_seconds", topic="orders") == 7


def test_schedules_are_late_when_nobody_keeps_them_going(url: str) -> None:
    clock = ManualClock()
    with shardq.connect(url, clock=clock) as client:
        client.create_queue("reports")
        client.schedules.create("hourly", queue="reports", every=3600)
        client.schedules.create("paused", queue="reports", every=3600)
        client.schedules.pause("paused")
        client.schedules.create(
            "once", queue="reports", at=datetime.fromtimestamp(clock.now() / 1e6, UTC) + timedelta(days=1)
        )
        collector = QueueMetrics(client)
        value = Scraped(collector)
        collector.sample()
        assert value("schedules_late", queue="reports") == 0
        clock.advance(3600 + 90)
        collector.sample()
    assert value("schedules", queue="reports") == 3
    assert value("schedules_late", queue="reports") == 1
    assert value("schedule_late_seconds", queue="reports") == 90


def test_a_scrape_asks_the_store_nothing(url: str) -> None:
    store = FaultyStore(open_store(url, SystemClock()), FaultPlan())
    with shardq.Client(store) as client:
        client.create_queue("orders").producer().send(b"1")
        collector = QueueMetrics(client)
        collector.sample()
        value, asked = Scraped(collector), len(store.calls)
        assert value("queue_messages", queue="orders", state="ready") == 1
        assert len(store.calls) == asked


def test_the_consumers_are_counted_without_reading_what_they_hold(url: str) -> None:
    store = FaultyStore(open_store(url, SystemClock()), FaultPlan())
    with shardq.Client(store) as client:
        queue = client.create_queue("orders")
        queue.producer().send_many([b"x"] * 10)
        with queue.consumer() as consumer:
            consumer.receive(10)
            store.calls.clear()
            QueueMetrics(client).sample()
    assert "peek" not in {call.method for call in store.calls}


def test_the_last_samples_are_shown_for_five_minutes_while_the_store_is_unreachable(url: str) -> None:
    timer = ManualTimer()
    faults = tuple(Fault("list_queues", number, FaultKind.UNAVAILABLE) for number in range(4, 99))
    store = FaultyStore(open_store(url, SystemClock()), FaultPlan(faults=faults))
    with shardq.Client(store, retry_seconds=0) as client:
        client.create_queue("orders")
        collector = QueueMetrics(client, timer=timer)
        value = Scraped(collector)
        collector.sample()
        timer.advance(200)
        with pytest.raises(shardq.StoreUnavailable):
            collector.sample()
        assert value("store_up") == 0
        assert value("queue_messages", queue="orders", state="ready") == 0
        assert value("queue_sample_age_seconds", queue="orders") == 200
        timer.advance(101)
        assert value("queue_messages", queue="orders", state="ready") is None


def test_a_queue_that_was_deleted_is_shown_no_more(url: str) -> None:
    with shardq.connect(url) as client:
        client.create_queue("orders")
        client.create_queue("mail")
        collector = QueueMetrics(client, prefix="o")
        value = Scraped(collector)
        collector.sample()
        assert value("queue_messages", queue="orders", state="ready") == 0
        assert value("queue_messages", queue="mail", state="ready") is None
        client.delete_queue("orders")
        collector.sample()
    assert value("queue_messages", queue="orders", state="ready") is None


def test_sampling_takes_a_twentieth_of_the_time_at_most(url: str) -> None:
    timer = ManualTimer()

    class Slow(FaultyStore):
        def count(self, *given, **options):
            timer.advance(3)
            return super().count(*given, **options)

    with shardq.Client(Slow(open_store(url, SystemClock()), FaultPlan())) as client:
        client.create_queue("orders", max_deliveries=None).producer().send(b"x")
        collector = QueueMetrics(client, timer=timer)
        assert collector.pause == 15
        collector.sample()
        assert collector.pause == 19 * 3


class _Out(FaultyStore):
    """A store that can be unreachable: each request then takes its time, by a timer, and fails."""

    def __init__(self, url: str, timer: ManualTimer, seconds: float) -> None:
        super().__init__(open_store(url, SystemClock()), FaultPlan())
        self.timer, self.seconds, self.left = timer, seconds, 0

    def list_queues(self, *given, **options):
        if self.left:
            self.left -= 1
            self.timer.advance(self.seconds)
            raise shardq.StoreUnavailable("out")
        return super().list_queues(*given, **options)


def test_an_outage_does_not_lengthen_the_pause_and_the_age_of_what_is_shown(url: str) -> None:
    timer = ManualTimer()
    store = _Out(url, timer, 60)
    with shardq.Client(store, retry_seconds=0.5) as client:
        client.create_queue("orders")
        client.schedules.create("daily", queue="orders", every=86_400)
        collector = QueueMetrics(client, timer=timer)
        value = Scraped(collector)
        collector.sample()
        store.left = 1_000
        with pytest.raises(shardq.StoreUnavailable):
            collector.sample()
        assert (collector.pause, value("store_up")) == (15, 0)
        store.left = 2  # it answers when the request is repeated
        collector.sample()
        assert (collector.pause, value("store_up")) == (15, 1)
        timer.advance(299)
        assert (value("schedules", queue="orders"), value("consumers", queue="orders")) == (1, 0)
        timer.advance(2)
    assert value("consumers", queue="orders") is None
    assert value("schedules", queue="orders") is None


def test_the_store_counts_as_reached_while_it_is_sampled_again(url: str) -> None:
    seen = []

    class Watched(FaultyStore):
        def list_queues(self, *given, **options):
            seen.append(collector is not None and Scraped(collector)("store_up"))
            return super().list_queues(*given, **options)

    collector = None
    with shardq.Client(Watched(open_store(url, SystemClock()), FaultPlan()), retry_seconds=0.5) as client:
        client.create_queue("orders")
        collector = QueueMetrics(client)
        collector.sample()
        seen.clear()
        collector.sample()
    assert seen
    assert set(seen) == {1}


def test_it_samples_in_the_background_until_it_is_closed(url: str) -> None:
    with shardq.connect(url) as client:
        client.create_queue("orders")
        with QueueMetrics(client) as collector:
            value = Scraped(collector)
            collector.start()
            collector.start()
            assert [each.name for each in threading.enumerate()].count("shardq-queue-metrics") == 1
            while value("store_up") != 1:
                threading.Event().wait(0.01)
            assert collector.runs


def test_a_store_whose_file_does_not_exist_is_down_until_it_has_a_queue(tmp_path) -> None:
    with shardq.connect(f"sqlite:///{tmp_path}/wrong.db") as client:
        collector = QueueMetrics(client)
        collector.sample()
        assert Scraped(collector)("store_up") == 0
        client.create_queue("orders")
        collector.sample()
        assert Scraped(collector)("store_up") == 1


def test_the_command_prints_the_metrics_once(url: str) -> None:
    with shardq.connect(url) as client:
        client.create_queue("orders").producer().send(b"x")
    done = CliRunner().invoke(main, ["--url", url, "metrics", "--once"])
    assert done.exit_code == 0, done.output
    families = {family.name: family for family in text_string_to_metric_families(done.stdout)}
    ready = [
        sample.value
        for sample in families["shardq_queue_messages"].samples
        if sample.labels == {"queue": "orders", "state": "ready"}
    ]
    assert ready == [1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--port", "70000"], "port=70000 is out of range: give 0 to 65535"),
        (["--interval", "0.1s"], "interval=0.1 is out of range: give 1 to 3600"),
        (["--bind", "192.0.2.1", "--port", "0"], "address '192.0.2.1', port 0 cannot be used"),
    ],
    ids=["port", "interval", "address"],
)
def test_wrong_options_are_refused_with_a_remedy(url: str, options: list[str], error: str) -> None:
    with shardq.connect(url) as client:
        client.create_schema()
    done = CliRunner().invoke(main, ["--url", url, "metrics", *options])
    assert done.exit_code == 2, done.output
    assert error in done.stderr


def test_without_the_extra_the_error_says_what_to_install(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    for command in (["metrics", "--once"], ["work", "orders", "--exec", "true", "--metrics-port", "0"]):
        done = CliRunner().invoke(main, ["--url", url, *command])
        assert done.exit_code != 0
        assert "pip install 'shardq[metrics]'" in done.stderr, done.stderr


@pytest.mark.server
def test_queues_of_a_server_are_sampled(postgresql_url: str) -> None:
    with shardq.connect(postgresql_url) as client:
        queue = client.create_queue("metrics/orders")
        queue.producer().send_many([b"1", b"2"])
        with queue.consumer() as consumer:
            consumer.receive(1)
            collector = QueueMetrics(client, prefix="metrics/")
            collector.sample()
    value = Scraped(collector)
    assert value("queue_messages", queue="metrics/orders", state="ready") == 1
    assert value("queue_messages", queue="metrics/orders", state="in_flight") == 1
    assert value("consumers", queue="metrics/orders") == 1
