"""The page of a pool: what all its processes have measured, also those that were killed."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import shardq
from shardq.metrics.monitor import Monitor, MonitorOptions, PoolState
from shardq.pipelines import PipelinePool
from shardq.tasks import TaskPool
from shardq.worker import PoolReport, WorkerPool


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of a pool import what they run."""
    here = Path(__file__).parent
    monkeypatch.setattr(sys, "path", [str(here), str(here.parent / "tasks"), *sys.path])


def scraped(port: int) -> dict[tuple[str, ...], float]:
    """Return the values of a page, by name and values of labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        text = page.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def is_growing(values: Sequence[float]) -> bool:
    return list(values) == sorted(values)


def test_one_page_shows_all_processes_and_counters_never_go_down_when_one_is_killed(
    url: str, client: shardq.Client
) -> None:
    with client.create_queue("orders", visibility_timeout=1).producer() as producer:
        producer.send_many([b"x"] * 40)
        producer.send(b"die")
        producer.send_many([b"x"] * 40)
    pages: list[dict[tuple[str, ...], float]] = []
    with Monitor(url, MonitorOptions(metrics_port=0)) as monitor:
        (port,) = monitor.ports

        def look(report: PoolReport) -> None:
            monitor.beat(
                PoolState(
                    report.processes, report.restarts, report.total.in_flight, stopping=report.stops > 0
                )
            )
            pages.append(scraped(port))
            if report.total.worked >= 81:
                pool.stop()

        pool = WorkerPool(
            url,
            "orders",
            "handlers_that_die:die_at_the_end",
            processes=2,
            batch=1,
            on_progress=look,
            measured=True,
        )
        monitor.measures = pool.measures
        report = pool.run()
        pages.append(scraped(port))
    worked = [page.get(("shardq_messages_worked_total", "orders"), 0.0) for page in pages]
    requests = [
        page.get(("shardq_operation_duration_seconds_count", "sqlite", "acknowledge"), 0.0) for page in pages
    ]
    assert is_growing(worked)
    assert is_growing(requests)
    assert report.restarts == 1
    assert pages[-1]["shardq_worker_restarts_total",] == 1
    assert worked[-1] > 40  # the last second of the process that was killed may be missing
    assert max(page["shardq_worker_processes",] for page in pages) == 2


def test_a_pool_of_tasks_counts_them_by_name(url: str, client: shardq.Client) -> None:
    tasks = __import__("apps_for_tests")
    tasks.app.bind(client)
    tasks.add.send(1, 2)
    pool = TaskPool(url, "apps_for_tests", idle_exit=0.5, measured=True)
    pool.run()
    assert pool.measures().numbers["tasks", "add", "done"] == 1


def test_a_pool_of_a_pipeline_measures_its_links(url: str, client: shardq.Client) -> None:
    client.create_queue("raw").producer().send(b"x")
    client.create_queue("clean")
    pool = PipelinePool(url, "handlers_that_die:pipeline", idle_exit=0.5, measured=True)
    pool.run()
    numbers = pool.measures().numbers
    assert (numbers["worked", "raw"], numbers["forwarded", "raw"]) == (1, 1)


def test_a_pool_that_is_not_measured_measures_nothing(url: str, queue: shardq.Queue) -> None:
    queue.producer().send(b"x")
    pool = WorkerPool(url, "orders", "handlers_that_die:die_at_the_end", idle_exit=0.2)
    assert pool.run().total.worked == 1
    assert pool.measures().numbers == {}
