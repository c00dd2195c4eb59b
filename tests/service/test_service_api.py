"""The JSON API: what it shows, what it changes, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import shardq
from shardq.service import Service, ServiceOptions, application
from shardq.service.endpoints import ENDPOINTS

API = "/api/v1"


def test_a_fresh_store_has_nothing_to_show(web) -> None:
    for path in (
        "overview",
        "queues",
        "consumers",
        "tasks",
        "workflows",
        "schedules",
        "topics",
        "limits",
        "system",
    ):
        assert web.get(f"{API}/{path}").status_code == 200, path


def test_livez_never_asks_the_store_and_readyz_does(serve, tmp_path) -> None:
    web = serve(at=f"sqlite:///{tmp_path}/missing/queue.db")
    assert web.get("/livez").status_code == 200
    assert web.get("/readyz").status_code == 503


def _ready(web: TestClient) -> tuple[int, str]:
    """Return what /readyz answers, of the file as it is now."""
    service: Any = web.app
    service.store.forget()
    service.store.checks.forget()
    answer = web.get("/readyz")
    return answer.status_code, answer.text


def test_readyz_says_that_the_file_of_the_store_is_missing_or_damaged_until_it_is_back(web, tmp_path) -> None:
    file, kept = tmp_path / "queue.db", tmp_path / "kept.db"
    assert not file.exists()
    assert _ready(web) == (200, "ok\n")  # the first queue may come through the service
    web.post(f"{API}/queues", json={"name": "orders"})
    assert _ready(web) == (200, "ok\n")
    web.post(f"{API}/messages/orders", json={"body": "x" * 100_000})
    with closing(sqlite3.connect(file)) as sql, closing(sqlite3.connect(kept)) as copy:
        sql.backup(copy)
        (number,) = copy.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'slice_by_due'").fetchone()
        (size,) = copy.execute("PRAGMA page_size").fetchone()
    whole = kept.read_bytes()
    for damaged, said in (
        (
            whole[: size * (number - 1)] + b"\xff" * size + whole[size * number :],
            "the file of the store is damaged",
        ),
        (whole[: len(whole) // 2], "the store cannot be read"),
        (b"", "the file of the store is damaged"),
        (b"no database" * 1_000, "the store cannot be read"),
    ):
        _replace(file, damaged)
        status, text = _ready(web)
        assert (status, text.partition(":")[0].strip()) == (503, said)
        assert str(file) not in text
        _replace(file, whole)
        assert _ready(web) == (200, "ok\n")
    _remove(file)
    assert _ready(web) == (503, "the file of the store does not exist\n")


def _remove(file: Path) -> None:
    for each in (file, *(file.with_name(file.name + log) for log in ("-wal", "-shm"))):
        each.unlink(missing_ok=True)


def _replace(file: Path, content: bytes) -> None:
    """Put a file in the place of another one that is in use, as a restore does."""
    _remove(file)
    fresh = file.with_name("fresh")
    fresh.write_bytes(content)
    fresh.replace(file)


def test_readyz_answers_in_time_while_the_store_does_not(url, monkeypatch) -> None:
    async def wait(**_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(application, "READY_SECONDS", 0.05)
    service = Service(url, ServiceOptions())
    with TestClient(service, base_url="http://localhost") as web:
        monkeypatch.setattr(service.store.client, "ping", wait)
        assert web.get("/readyz").status_code == 503


def test_an_unreachable_store_is_told_and_is_used_again_when_it_is_back(serve, tmp_path) -> None:
    file = tmp_path / "queue.db"
    file.write_bytes(b"no database" * 1_000)
    web = serve(at=f"sqlite:///{file}")
    answer = web.get(f"{API}/queues")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.json()["code"] == "store_unavailable"
    file.unlink()
    assert web.post(f"{API}/queues", json={"name": "orders"}).status_code == 200
    assert [each["name"] for each in web.get(f"{API}/queues").json()["queues"]] == ["orders", "orders.dead"]


def test_a_queue_is_created_altered_paused_and_deleted(web, url) -> None:
    made = web.post(f"{API}/queues", json={"name": "a/b", "settings": {"shards": 3}})
    assert made.json()["settings"]["shards"] == 3
    altered = web.patch(f"{API}/queues/a%2Fb", json={"settings": {"visibility_timeout": 90}})
    assert altered.json()["settings"]["visibility_timeout"] == 90
    assert web.post(f"{API}/pause/a/b", json={"sends": True}).json()["queue"]["sends_paused"]
    assert not web.post(f"{API}/resume/a/b", json={}).json()["queue"]["delivery_paused"]
    assert web.delete(f"{API}/queues/a/b").status_code == 400
    assert web.delete(f"{API}/queues/a/b", params={"confirm": "a"}).status_code == 400
    assert web.delete(f"{API}/queues/a/b", params={"confirm": "a/b"}).json()["changed"] == 1
    with shardq.connect(url) as client:
        assert client.queues() == ("a/b.dead",)


def test_a_message_is_sent_shown_and_removed(web, orders) -> None:
    body = {
        "body": '{"n": [1, 2]}',
        "encoding": "json",
        "headers": {"kind": "new"},
        "priority": 2,
        "group": "ada",
    }
    identity = web.post(f"{API}/messages/orders", json=body).json()["id"]
    hidden = web.get(f"{API}/message/{identity}").json()
    assert (hidden["body"], hidden["encoding"], hidden["size"]) == (None, None, 13)
    shown = web.get(f"{API}/message/{identity}", params={"body": "true"}).json()
    assert (shown["body"], shown["headers"], shown["priority"]) == ({"n": [1, 2]}, {"kind": "new"}, 2)
    assert web.delete(f"{API}/message/{identity}").json()["changed"] == 1
    assert web.get(f"{API}/message/{identity}").status_code == 404


@pytest.mark.parametrize(
    ("body", "encoding", "shown"),
    [
        (b"plain", "text", "plain"),
        (b"\xff\x00", "base64", "/wA="),
        (b'{"n": 1}', "json", {"n": 1}),
        (b"[" * 5_000 + b"]" * 5_000, "text", None),
        ("ä".encode() * 40_000, "text", None),
    ],
)
def test_bodies_are_shown_as_what_they_are(web, orders, body: bytes, encoding: str, shown: object) -> None:
    with orders.producer() as producer:
        identity = producer.send(body)
    found = web.get(f"{API}/message/{identity}", params={"body": "true"}).json()
    assert found["encoding"] == encoding
    assert found["truncated"] is (len(body) > 65_536)
    assert shown is None or found["body"] == shown


def test_messages_are_filtered_by_state_header_group_priority_and_age(web, orders) -> None:
    with orders.producer() as producer:
        producer.send(b"1", headers={"kind": "new"}, priority=1)
        producer.send(b"2", headers={"kind": "old"}, group="ada")
        producer.send(b"3", delay=60)

    def found(**given: object) -> list[str]:
        answer = web.get(f"{API}/messages/orders", params={"bodies": True, **given}).json()
        return sorted(each["body"] for each in answer["messages"])

    assert found() == ["1", "2", "3"]
    assert found(header="kind") == ["1", "2"]
    assert found(header="kind=old") == ["2"]
    assert found(priority=1) == ["1"]
    assert found(group="ada") == ["2"]
    assert found(state="delayed") == ["3"]
    assert found(older=3600) == []
    assert found(size=1, page=2) in (["1"], ["2"], ["3"])


def test_looking_at_messages_receives_none_of_them(web, orders) -> None:
    with orders.producer() as producer:
        producer.send_many([b"1"] * 10)
    web.get(f"{API}/messages/orders", params={"bodies": True})
    assert orders.counts().ready == 10
    assert all(each.deliveries == 0 for each in orders.peek(10))


def test_dead_letters_are_counted_by_reason_and_sent_back_one_some_or_all(web, orders, make_letters) -> None:
    bank, _ = make_letters(2, "bank"), make_letters(3, "disk")
    found = web.get(f"{API}/dead-letters/orders.dead").json()
    assert [(each["reason"], each["count"]) for each in found["reasons"]] == [("disk", 3), ("bank", 2)]
    assert {each["source"] for each in found["dead_letters"]} == {"orders"}
    assert web.post(f"{API}/redrive/orders.dead", json={"ids": bank[:1]}).json()["changed"] == 1
    assert web.get(f"{API}/message/{bank[1]}").status_code == 200
    assert web.post(f"{API}/redrive/orders.dead", json={"reason": "disk"}).json()["changed"] == 3
    assert web.get(f"{API}/dead-letters/orders.dead").json()["matching"] == 1
    assert web.post(f"{API}/redrive/orders.dead", json={}).json()["changed"] == 1
    assert orders.counts().ready == 5


def test_dead_letters_are_chosen_by_a_part_of_their_reason_as_by_the_command(
    web, orders, make_letters
) -> None:
    make_letters(1, "timeout of the bank"), make_letters(2, "timeout of the disk"), make_letters(1, "refused")
    assert web.get(f"{API}/dead-letters/orders.dead", params={"reason": "timeout"}).json()["matching"] == 3
    assert web.post(f"{API}/redrive/orders.dead", json={"reason": "Timeout"}).json()["changed"] == 0
    assert web.post(f"{API}/redrive/orders.dead", json={"reason": "bank"}).json()["changed"] == 1
    assert web.post(f"{API}/remove/orders.dead", json={"reason": "timeout"}).json()["changed"] == 2
    assert web.post(f"{API}/remove/orders", json={"reason": "none"}).json()["changed"] == 0
    assert orders.counts().ready == 1


def test_a_redrive_of_the_wrong_queue_names_the_dead_letter_queue(web, make_letters) -> None:
    make_letters(1, "bank")
    refused = web.post(f"{API}/redrive/orders", json={})
    assert (refused.status_code, "in 'orders.dead'" in refused.json()["detail"]) == (404, True)
    assert web.post(f"{API}/redrive/orders.dead", json={}).json()["changed"] == 1
    assert web.post(f"{API}/redrive/orders.dead", json={}).json()["changed"] == 0


def test_dead_letters_are_removed_by_id_or_reason_and_never_all_by_accident(
    web, orders, dead, make_letters
) -> None:
    ids, _ = make_letters(2, "bank"), make_letters(3, "disk")
    assert web.post(f"{API}/remove/orders.dead", json={}).status_code == 400
    assert web.post(f"{API}/remove/orders.dead", json={"ids": ids[:1]}).json()["changed"] == 1
    assert web.post(f"{API}/remove/orders.dead", json={"reason": "disk"}).json()["changed"] == 3
    assert [each.id for each in dead.peek(10)] == ids[1:]


def test_messages_that_match_are_removed_and_never_all_by_accident(web, orders) -> None:
    with orders.producer() as producer:
        producer.send_many([b"1"] * 20, group="ada")
        producer.send_many([b"2"] * 3)
    refused = web.post(f"{API}/remove-matching/orders", json={"scan": 10})
    assert (refused.status_code, "purge it" in refused.json()["detail"]) == (400, True)
    assert web.post(f"{API}/remove-matching/orders", json={"page": 1, "group": "ada"}).status_code == 400
    removed = web.post(f"{API}/remove-matching/orders", json={"group": "ada"})
    assert removed.json() == {"changed": 20, "more": False}
    assert [each.body for each in orders.peek(10)] == [b"2"] * 3


def test_consumers_are_listed_with_what_they_hold_and_evicted(web, orders) -> None:
    with orders.producer() as producer:
        producer.send(b"1")
    with orders.consumer(name="ada") as consumer:
        consumer.receive(1, wait=5)
        (shown,) = web.get(f"{API}/consumers/orders").json()["consumers"]
        assert (shown["name"], shown["held"], shown["alive"]) == ("ada", 1, True)
        assert web.post(f"{API}/evict/orders", json={"consumer": "ada"}).status_code == 409
        forced = web.post(f"{API}/evict/orders", json={"consumer": "ada", "force": True})
        assert forced.json()["changed"] == 1
    assert orders.counts().ready == 1


def test_shards_have_levels_by_depth(web, orders) -> None:
    with orders.producer() as producer:
        producer.send_many([b"1"] * 100, group="ada")
        producer.send(b"2")
    found = web.get(f"{API}/shards/orders").json()
    levels = {each["grouped"]: each["level"] for each in found["states"] if each["ready"]}
    assert levels[True] == 9
    assert 1 <= levels[False] < 9
    assert (found["shards"], found["time_shards"]) == (2, 2)


def test_schedules_topics_and_limits_are_shown(web, url) -> None:
    with shardq.connect(url) as client:
        client.create_queue("reports", max_in_flight=3, rate_limit="5/s", max_messages=10)
        client.schedules.create("nightly", queue="reports", cron="30 2 * * *")
        client.create_topic("news").subscribe("archive")
        client.semaphore("smtp", permits=2)
    assert web.post(f"{API}/schedules/pause", json={"id": "nightly"}).json()["paused"]
    assert web.post(f"{API}/schedules/resume", json={"id": "nightly"}).json()["next"]
    assert web.post(f"{API}/schedules/trigger", json={"id": "nightly"}).json()["id"].startswith("reports:")
    (topic,) = web.get(f"{API}/topics").json()["topics"]
    assert [each["name"] for each in topic["subscriptions"]] == ["archive"]
    kinds = {each["kind"] for each in web.get(f"{API}/limits").json()["limits"]}
    assert kinds == {"in flight", "rate", "waiting messages", "semaphore"}


def test_a_list_that_reads_only_some_of_many_queues_says_so(ui, url) -> None:
    with shardq.connect(url) as client:
        for number in range(201):
            client.create_queue(f"q{number:03}", max_deliveries=None)
    for path in ("consumers", "limits"):
        found = ui.get(f"{API}/{path}").json()
        assert (found[path], found["queues"], found["total"]) == ([], 200, 201)
        page = ui.get(f"/{path}").text
        assert "Of the first 200 of 201 queues" in page
        assert f"There are no {path}" not in page
    assert not ui.get(f"{API}/tasks").json()["complete"]


def test_tasks_and_workflows_are_shown(web, url) -> None:
    from shardq.tasks import Tasks, chain

    app = Tasks(url)

    @app.task(queue="math")
    def double(number: int) -> int:
        return 2 * number

    chain(double.signature(1), double.then()).send(name="nightly")
    app.drain()
    double.send(4)
    (task,) = web.get(f"{API}/tasks").json()["tasks"]
    assert (task["task"].rpartition(".")[2], task["state"]) == ("double", "waiting")
    (flow,) = web.get(f"{API}/workflows").json()["workflows"]
    assert (flow["name"], flow["state"]) == ("nightly", "done")
    steps = web.get(f"{API}/workflows/{flow['id']}").json()["steps"]
    assert [step["state"] for step in steps] == ["done", "done"]
    app.close()


def test_tasks_are_found_behind_a_queue_with_many_other_messages(ui, url) -> None:
    from shardq.tasks import Tasks

    with shardq.connect(url) as client:
        client.create_queue("mail").producer().send_many([b"dear customer"] * 6_000)
        app = Tasks(url)

        @app.task(queue="pictures")
        def resize() -> None:
            raise AssertionError

        for _ in range(250):
            resize.send()
        app.close()
    found = ui.get(f"{API}/tasks", params={"limit": 1_000}).json()
    assert ({each["queue"] for each in found["tasks"]}, found["matching"]) == ({"pictures"}, 250)
    assert not found["complete"]
    mail = ui.get(f"{API}/tasks", params={"queue": "mail"}).json()
    assert (mail["matching"], mail["complete"]) == (0, False)
    assert "Not all messages were read" in ui.get("/tasks?queue=mail").text
    assert "No task waits or runs" not in ui.get("/tasks?queue=mail").text


def test_the_description_names_every_endpoint_with_its_types(web) -> None:
    described = web.get(f"{API}/openapi.json").json()
    assert described["openapi"] == "3.1.0"
    for endpoint in ENDPOINTS:
        operation = described["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["operationId"] == endpoint.name
    references = set(_references(described))
    assert references
    assert references <= {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}


def test_the_description_says_whether_a_key_is_needed(serve, keys) -> None:
    keys.create("ops", "read")
    found = [
        serve(keys=path).get(f"{API}/openapi.json").json()["security"] for path in (str(keys.path), None)
    ]
    assert found == [[{"key": []}], []]


def _references(document: object) -> list[str]:
    if isinstance(document, dict):
        own = [document["$ref"]] if isinstance(document.get("$ref"), str) else []
        return own + [each for value in document.values() for each in _references(value)]
    return [each for value in document for each in _references(value)] if isinstance(document, list) else []


def test_a_service_is_mounted_under_a_prefix_of_another_application(url) -> None:
    app = Starlette(routes=[Mount("/queues", app=Service(url, ServiceOptions()))])
    with TestClient(app, base_url="http://localhost") as web:
        assert web.get("/queues/livez").status_code == 200
        assert web.post(f"/queues{API}/queues", json={"name": "orders"}).status_code == 200
        assert web.get(f"/queues{API}/openapi.json").json()["servers"] == [{"url": f"/queues{API}"}]


@pytest.mark.parametrize(
    "path",
    [
        f"{API}/queues?size=nan",
        f"{API}/queues?size=0",
        f"{API}/queues?page=1&page=2",
        f"{API}/queues?unknown=1",
        f"{API}/queues?search=%ff",
        f"{API}/messages/orders?older=nan",
        f"{API}/messages/orders?priority=12",
        f"{API}/messages/%00",
        f"{API}/message/nonsense",
        f"{API}/message/orders:1:1",
        f"{API}/trace/orders:0:0:0:0",
        f"{API}/workflows/%2e",
        f"{API}/shards/orders?by=colour",
        f"{API}/tasks?queue=%00",
    ],
)
def test_wrong_parameters_are_refused_and_break_nothing(web, orders, path: str) -> None:
    answer = web.get(path)
    assert answer.status_code in (400, 404)
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"body": 1}',
        b'{"body": "\\ud800"}',
        b'{"body": NaN}',
        b"\xff",
    ],
)
def test_wrong_json_is_refused(web, orders, body: bytes) -> None:
    answer = web.post(f"{API}/messages/orders", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert json.loads(answer.text)["code"] == "invalid_parameters"


def test_what_a_queue_refuses_is_no_defect_of_the_service(web, orders) -> None:
    orders.alter(max_message_bytes=10)
    assert web.post(f"{API}/messages/orders", json={"body": "x" * 11}).status_code == 413
    orders.pause(sends=True)
    assert web.post(f"{API}/messages/orders", json={"body": "x"}).status_code == 409
    for settings in (
        {"shards": 0},
        {"nothing": 1},
        {"visibility_timeout": "soon"},
        {"dead_letter_queue": 5},
        {"name": "x"},
        {"self": 1},
        {"exist_ok": True},
    ):
        assert web.patch(f"{API}/queues/orders", json={"settings": settings}).status_code == 400, settings
        assert web.post(f"{API}/queues", json={"name": "fresh", "settings": settings}).status_code == 400, (
            settings
        )
    assert web.post(f"{API}/queues", json={"name": "orders"}).status_code == 409
    assert web.post(f"{API}/queues", json={"name": "~"}).status_code == 400
