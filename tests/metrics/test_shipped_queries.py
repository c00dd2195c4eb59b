"""The dashboard, the alerts and the recipes for KEDA, on pages of real queues, workers and tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

import shardq
import shardq.tasks
from shardq.base.clock import SystemClock
from shardq.metrics import Metrics, QueueMetrics
from shardq.metrics.monitor import Monitor, MonitorOptions, PoolState
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import ObservedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.worker import Worker
from tests.docs.pages import ROOT
from tests.metrics.promql import INTERVAL, Scrape, evaluate, parsed, scrape, selectors

DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "shardq.json").read_text())
ALERTS = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
RECIPES = [
    trigger
    for document in yaml.safe_load_all((DEPLOY / "keda" / "workers.yaml").read_text())
    for trigger in document["spec"]["triggers"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = {
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in PANELS
        for target in panel["targets"]
    },
    **{rule["alert"]: rule["expr"] for rule in ALERTS},
    **{f"KEDA {number}": trigger["metadata"]["query"] for number, trigger in enumerate(RECIPES)},
}


class Scene:
    """A queue with workers, a topic, a schedule and tasks; and what Prometheus sees of all of it."""

    def __init__(self, url: str) -> None:
        self.clock, self.metrics = ManualClock(), Metrics()
        # The third append fails; so does what the sampling asks for, when a test says so.
        plan = FaultPlan(faults=(Fault("append", 3, FaultKind.UNAVAILABLE),))
        store = FaultyStore(open_store(url, self.clock), plan)
        observed = ObservedStore(store, "sqlite", self.metrics)
        self.client = shardq.Client(observed, observer=self.metrics)
        self.queues = QueueMetrics(self.client)
        self.monitor = Monitor(url, MonitorOptions())
        self.monitor.measures = self.metrics.measures
        self.registries = [CollectorRegistry(), CollectorRegistry()]
        self.registries[0].register(self.queues)
        self.registries[1].register(self.monitor)
        self.orders = self.client.create_queue("orders", max_deliveries=1, visibility_timeout=600)

    def scraped(self) -> Scrape:
        self.queues.sample()
        return scrape(*self.registries)

    def work(self, handler: Callable[[shardq.Message], object]) -> None:
        Worker(self.orders, handler, idle_exit=0).run()


@pytest.fixture
def scene(url: str) -> Iterator[Scene]:
    scene = Scene(url)
    with scene.client:
        yield scene


@pytest.fixture
def busy(scene: Scene) -> list[Scrape]:
    """Pages before and after everything has happened that a query asks for."""
    client, clock = scene.client, scene.clock
    client.create_topic("orders").subscribe("mail")
    client.schedules.create("hourly", queue="orders", every=3600)
    tasks = shardq.tasks.Tasks()
    tasks.bind(client)

    @tasks.task(name="charge", retry=1)
    def charge(fails: bool) -> None:
        if fails:
            raise ValueError

    def all_of_it() -> None:
        scene.orders.producer().send(b"short", ttl=1)
        scene.orders.producer().send_many([b"good", b"bad"])
        clock.advance(2)
        scene.work(fail_bad)
        charge.send(False)
        charge.send(True)
        shardq.tasks.TaskWorker(tasks, client, threads=0, idle_exit=0).run()
        with scene.orders.consumer() as consumer:
            scene.orders.producer().send(b"lost")
            late = consumer.receive(1)
            clock.advance(601)
            scene.work(lambda _: None)
            with pytest.raises(shardq.LeaseLost):
                late.ack()

    all_of_it()
    scene.monitor.beat(PoolState(2, 0, 0, stopping=False))
    before = scene.scraped()
    all_of_it()
    client.topic("orders").publish_many([b"1", b"2"])
    client.topic("orders").relay()
    client.topic("orders").publish(b"3")
    scene.orders.producer().send_many([b"due"] * 1500)
    clock.advance(4000)
    scene.monitor.beat(PoolState(2, 5, 1, stopping=False))
    return [before, scene.scraped()]


def fail_bad(message: shardq.Message) -> None:
    if message.body == b"bad":
        raise ValueError("bad")


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_a_query_can_be_parsed(query: str) -> None:
    assert selectors(parsed(query))


def test_every_metric_and_label_of_a_query_is_shown(busy: list[Scrape]) -> None:
    shown = {name: {label for labels in vector for label, _ in labels} for name, vector in busy[-1].items()}
    for title, query in QUERIES.items():
        for selector in selectors(parsed(query)):
            assert selector.name in shown, f"{title}: nothing shows {selector.name}"
            asked = {each.name for each in selector.matchers.matchers}
            assert asked <= shown[selector.name], title
        grouped = {
            label for labels in re.findall(r"(?:by|on) \(([^)]*)\)", query) for label in labels.split(", ")
        }
        known = set().union(*(shown[each.name] for each in selectors(parsed(query))))
        assert grouped <= known, title


def test_every_query_of_the_dashboard_has_an_answer(busy: list[Scrape]) -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            assert evaluate(target["expr"], *busy), panel["title"]


def test_the_dashboard_can_be_imported_and_follows_its_data_source_and_the_interval() -> None:
    assert DASHBOARD["uid"] == "shardq-queues"
    assert [each["name"] for each in DASHBOARD["__inputs"]] == ["DS_PROMETHEUS"]
    (source,) = (each for each in DASHBOARD["templating"]["list"] if each["type"] == "datasource")
    assert source["name"] == "datasource"
    assert "id" not in DASHBOARD
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            for interval in re.findall(r"\[([^\]]+)\]", target["expr"]):
                assert interval == INTERVAL, panel["title"]


def fires(name: str, *scrapes: Scrape) -> bool:
    (rule,) = (each for each in ALERTS if each["alert"] == name)
    return bool(evaluate(rule["expr"], *scrapes))


def test_no_alert_fires_while_all_is_well(scene: Scene) -> None:
    def work() -> None:
        scene.orders.producer().send_many([b"good"] * 10)
        scene.work(lambda _: None)

    scene.orders.producer().send_many([b"good"])  # the third append fails, and is repeated
    work()
    scene.monitor.beat(PoolState(2, 0, 0, stopping=False))
    before = scene.scraped()
    work()
    pages = [before, scene.scraped()]
    assert [rule["alert"] for rule in ALERTS if fires(rule["alert"], *pages)] == []


@pytest.mark.parametrize(
    "alert",
    [
        "ShardqQueueLate", "ShardqNoConsumers", "ShardqDeadLetters", "ShardqHandlersFail", "ShardqLeasesLost",
        "ShardqTasksFail", "ShardqSchedulesLate", "ShardqWorkersDie",
    ],
)  # fmt: skip
def test_an_alert_fires_when_something_is_wrong(busy: list[Scrape], alert: str) -> None:
    assert fires(alert, *busy)


def test_messages_that_stay_in_flight_fire_an_alert(scene: Scene) -> None:
    scene.orders.producer().send(b"hangs")
    with scene.orders.consumer() as consumer:
        held = consumer.receive(1)
        pages = [scene.scraped(), scene.scraped()]
        assert fires("ShardqNothingAcked", *pages)
        scene.orders.producer().send(b"other")
        scene.work(lambda _: None)
        assert not fires("ShardqNothingAcked", pages[0], scene.scraped())
        held.ack()


def test_a_topic_that_is_not_relayed_fires_an_alert(scene: Scene) -> None:
    topic = scene.client.create_topic("orders")
    topic.subscribe("mail")
    topic.publish(b"1")
    scene.clock.advance(61)
    assert fires("ShardqTopicLag", scene.scraped())


def test_an_unreachable_store_and_missing_metrics_fire_alerts(url: str) -> None:
    faults = tuple(Fault("list_queues", number, FaultKind.UNAVAILABLE) for number in range(1, 9))
    store = FaultyStore(open_store(url, SystemClock()), FaultPlan(faults=faults))
    registry = CollectorRegistry()
    with shardq.Client(store, retry_seconds=0) as client:
        queues = QueueMetrics(client)
        with pytest.raises(shardq.StoreUnavailable):
            queues.sample()
    registry.register(queues)
    assert fires("ShardqStoreUnreachable", scrape(registry))
    assert not fires("ShardqMetricsMissing", scrape(registry))
    assert fires("ShardqMetricsMissing", {})


def test_errors_and_slow_requests_fire_alerts() -> None:
    metrics, registry = Metrics(), CollectorRegistry()
    registry.register(metrics)
    record = metrics.requests("sqlite", "append")
    record(0.001)
    metrics.refused("sqlite", "append", shardq.StoreUnavailable("away"))
    before = scrape(registry)
    assert not fires("ShardqStoreErrors", before, before)
    record(2.0)
    metrics.refused("sqlite", "append", shardq.StoreUnavailable("away"))
    assert fires("ShardqStoreErrors", before, scrape(registry))
    assert fires("ShardqStoreSlow", before, scrape(registry))


def test_every_alert_has_what_to_do_and_how_bad_it_is() -> None:
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}


def keda(number: int, *scrapes: Scrape) -> float:
    """Return the number that KEDA scales by."""
    (value,) = evaluate(RECIPES[number]["metadata"]["query"], *scrapes).values()
    return value


def test_keda_scales_by_what_is_due_or_in_flight_and_by_lateness(scene: Scene) -> None:
    assert (keda(0, scene.scraped()), keda(1, scene.scraped())) == (0, 0)
    scene.orders.producer().send_many([b"due"] * 7)
    scene.orders.producer().send(b"later", delay=900)
    with scene.orders.consumer() as consumer:
        held = consumer.receive(3)
        scene.clock.advance(40)
        page = scene.scraped()
        assert (keda(0, page), keda(1, page)) == (7, 40)
        held.ack()
    assert keda(0, scene.scraped()) == 4


def test_keda_scales_the_consumers_of_a_subscription_by_what_is_not_acked_or_not_relayed(
    scene: Scene,
) -> None:
    topic = scene.client.create_topic("orders")
    topic.subscribe("mail")
    topic.publish_many([b"1", b"2"])
    scene.clock.advance(50)
    page = scene.scraped()
    assert (keda(2, page), keda(3, page)) == (0, 50)
    topic.relay()
    page = scene.scraped()
    assert (keda(2, page), keda(3, page)) == (2, 0)


def test_keda_falls_back_when_there_is_no_answer() -> None:
    """Without that it would take an unreachable store for an empty queue."""
    documents: list[Any] = list(yaml.safe_load_all((DEPLOY / "keda" / "workers.yaml").read_text()))
    assert all(document["spec"]["fallback"]["replicas"] > 0 for document in documents)
    assert all(trigger["metadata"]["ignoreNullValues"] == "false" for trigger in RECIPES)


def test_the_workers_of_kubernetes_and_systemd_are_watched_without_the_store() -> None:
    workers = next(yaml.safe_load_all((DEPLOY / "kubernetes" / "workers.yaml").read_text()))
    (container,) = workers["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    words = container["args"]
    assert words[words.index("--health-port") + 1] == ports["health"]
    assert words[words.index("--metrics-port") + 1] == ports["metrics"]
    unit = (DEPLOY / "shardq-worker@.service").read_text()
    assert re.search(r"^Type=notify$", unit, re.MULTILINE)
    assert re.search(r"^WatchdogSec=", unit, re.MULTILINE)


def test_the_page_of_the_docs_lists_every_metric(busy: list[Scrape]) -> None:
    page = Path(ROOT / "docs" / "metrics.md").read_text()
    for name in busy[-1]:
        base = re.sub(r"_(bucket|count|sum|created)$", "", name)
        assert f"`{base}`" in page, base
