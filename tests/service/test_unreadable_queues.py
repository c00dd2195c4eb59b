"""A queue whose settings cannot be read, as of a later version, does not keep other queues from being shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from click.testing import CliRunner

import shardq
from shardq.base.clock import SystemClock
from shardq.cli.commands.doctor import examine
from shardq.cli.main import main
from shardq.history import Sampler, read_history
from shardq.metrics import QueueMetrics
from shardq.storage.opening import open_store
from shardq.storage.records import QueueRecord
from shardq.testing import ManualTimer

API = "/api/v1"


@pytest.fixture
def client(url: str) -> Iterator[shardq.Client]:
    """A store with a queue that can be read between two that cannot."""
    with shardq.connect(url) as client:
        for name in ("a-later", "orders", "z-later"):
            client.create_queue(name, dead_letter_queue="secret.dead", max_in_flight=5).producer().send(b"x")
        with closing(open_store(url, SystemClock())) as store:
            for name in ("a-later", "z-later"):
                record = store.load_queue(name)
                assert record is not None
                assert store.update_queue(QueueRecord(name, b'{"shards": "many"}', record.version + 1))
        yield client


@pytest.mark.parametrize(
    "path", ["queues", "consumers", "limits", "tasks", "workflows", "overview", "checks"]
)
def test_the_service_shows_the_other_queues(serve, client: shardq.Client, path: str) -> None:
    answer = serve(doctor=examine).get(f"{API}/{path}")
    assert answer.status_code == 200, answer.text


def test_the_service_names_the_queue_with_its_error(serve, client: shardq.Client) -> None:
    web = serve(doctor=examine)
    rows = {each["name"]: each for each in web.get(f"{API}/queues").json()["queues"]}
    assert (rows["orders"]["ready"], rows["orders"]["error"]) == (1, None)
    assert "cannot be read" in rows["a-later"]["error"]
    wrong = [each for each in web.get(f"{API}/checks").json()["findings"] if each["state"] == "wrong"]
    assert [(each["subject"], each["name"]) for each in wrong] == [
        ("a-later", "settings"),
        ("z-later", "settings"),
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "queues"), ("GET", "shards"), ("GET", "messages"), ("GET", "consumers"), ("GET", "dead-letters"),
        ("POST", "sweep"), ("POST", "pause"),
    ],
)  # fmt: skip
def test_a_call_on_such_a_queue_is_no_fault_of_the_caller(
    serve, client: shardq.Client, method: str, path: str
) -> None:
    answer = serve().request(method, f"{API}/{path}/a-later", json=None if method == "GET" else {})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["retryable"]) == (500, "unreadable_settings", False)
    assert "'a-later' cannot be read" in problem["detail"]
    assert "use the version of shardq that wrote them" in problem["detail"]


def test_the_page_of_such_a_queue_names_it_with_the_remedy(serve, client: shardq.Client) -> None:
    page = serve(ui=True).get("/queues/a-later")
    assert page.status_code == 500
    assert "unreadable settings" in page.text
    assert "restore a backup" in page.text


def test_a_key_reads_no_settings_of_a_hidden_queue_in_an_error(serve, keys, client: shardq.Client) -> None:
    key = keys.create("ops", "read", ["orders*"])
    web = serve(keys=str(keys.path), doctor=examine)
    answer = web.get(f"{API}/checks", headers={"authorization": f"Bearer {key}"})
    assert (answer.status_code, "many" in answer.text, "later" in answer.text) == (200, False, False)


def test_doctor_checks_the_other_queues(url: str, client: shardq.Client) -> None:
    done = CliRunner().invoke(main, ["--url", url, "doctor", "--json"])
    checks = json.loads(done.stdout)["checks"]
    assert done.exit_code == 1
    assert {each["subject"] for each in checks if not each["ok"]} == {"a-later", "z-later"}
    assert ("orders", "oldest due") in {(each["subject"], each["name"]) for each in checks}


def test_metrics_and_history_have_the_other_queues(client: shardq.Client) -> None:
    collector, timer = QueueMetrics(client), ManualTimer()
    collector.sample()
    (family,) = (each for each in collector.collect() if each.name == "shardq_queue_messages")
    shown = {sample.labels["queue"]: sample.value for sample in family.samples if sample.value}
    assert shown == {"orders": 1}
    with Sampler(client, timer=timer) as sampler:
        sampler.step()
        timer.advance(15)
        sampler.step()
    assert read_history(client, "orders", since=60).points[-1].ready == 1
