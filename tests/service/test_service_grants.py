"""A key learns nothing of queues outside its patterns, also where other things name them."""

from __future__ import annotations

import json

import pytest

import shardq
from shardq.cli.commands.doctor import examine

API = "/api/v1"


@pytest.fixture
def client(url):
    with shardq.connect(url) as client:
        yield client


@pytest.fixture
def log_in(serve, keys):
    """Starts a service for a key with some patterns."""

    def start(*patterns: str, **options: object):
        key = keys.create("ops", "manage", patterns)
        web = serve(keys=str(keys.path), **options)
        web.headers["authorization"] = f"Bearer {key}"
        return web

    return start


def test_steps_of_a_workflow_in_hidden_queues_show_their_state_only(log_in, url) -> None:
    from shardq.tasks import Tasks, chain

    app = Tasks(url)

    @app.task(queue="orders")
    def count() -> int:
        return 2

    @app.task(queue="wages")
    def pay() -> None:
        raise shardq.DeadLetter("salary of ada")

    chain(count.signature(), pay.signature()).send(name="nightly")
    app.drain()
    app.close()
    web = log_in("orders*")
    (flow,) = web.get(f"{API}/workflows").json()["workflows"]
    answer = web.get(f"{API}/workflows/{flow['id']}")
    first, second = answer.json()["steps"]
    assert (first["task"].rpartition(".")[2], first["queue"]) == ("count", "orders")
    assert (second["task"], second["queue"], second["deliveries"], second["failure"]) == ("", "", None, None)
    assert second["state"] == "failed"
    assert not {"wages", "pay", "salary"} & set(answer.text.replace('"', " ").split())
    assert "salary" not in web.get(f"{API}/workflows").text


@pytest.mark.parametrize("dead_letter_queue", ["wages.dead", None], ids=["named", "default"])
def test_a_hidden_dead_letter_queue_is_shown_nowhere(log_in, client, dead_letter_queue) -> None:
    hidden = dead_letter_queue or "orders.dead"
    queue = client.create_queue("orders", dead_letter_queue=dead_letter_queue)
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send(b"1")
        consumer.receive(1, wait=5).dead_letter("bank")
    web = log_in("orders", doctor=examine)
    shown = [
        web.get(f"{API}/{path}").json()
        for path in ("overview", "queues", "queues?exact=false&sort=dead", "queues/orders", "checks")
    ]
    assert hidden not in json.dumps(shown)
    (row,) = shown[1]["queues"]
    assert (row["dead"], row["dead_letter_queue"]) == (None, None)
    assert (shown[0]["dead"], shown[0]["attention"]) == (0, [])
    assert "dead letters" not in {each["name"] for each in shown[4]["findings"]}


def test_letters_of_a_hidden_queue_name_it_nowhere(log_in, client) -> None:
    letters = client.create_queue("orders.dead", max_deliveries=None)
    for source in ("orders", "wages"):
        queue = client.create_queue(source, dead_letter_queue="orders.dead", events=3_600)
        with queue.producer() as producer, queue.consumer(name=f"{source}-worker") as consumer:
            producer.send(b"1")
            consumer.receive(1, wait=5).dead_letter("bank")
    ids = {each.headers["shardq-queue"]: each.id for each in letters.peek(10)}
    web = log_in("orders*", ui=True)
    web.post("/login", data={"key": web.headers.pop("authorization").removeprefix("Bearer ")})
    for path in ("dead-letters/orders.dead", "messages/orders.dead", f"message/{ids['wages']}"):
        for base in (API, ""):
            answer = web.get(f"{base}/{path}")
            assert (answer.status_code, "wages" in answer.text.replace(ids["wages"], "")) == (200, False), (
                path
            )
    assert web.get(f"{API}/trace/{ids['wages']}").json() == []
    assert web.get(f"{API}/trace/{ids['orders']}").json()[0]["kind"] == "sent"
    found = web.get(f"{API}/dead-letters/orders.dead").json()["dead_letters"]
    assert sorted(str(each["source"]) for each in found) == ["None", "orders"]
    assert web.get(f"{API}/dead-letters/orders.dead", params={"source": "wages"}).status_code == 404


def test_a_filter_by_headers_finds_only_headers_that_the_key_sees(log_in, client) -> None:
    letters = client.create_queue("orders.dead", max_deliveries=None)
    with letters.producer() as producer:
        producer.send(b"1", headers={"shardq-queue": "wages"})
        producer.send(b"2", headers={"shardq-queue": "orders"})
    everything, orders = log_in("**"), log_in("orders*")
    for header, seen in (("shardq-queue", 1), ("shardq-queue=wages", 0), ("shardq-queue=orders", 1)):
        for web, count in ((everything, 2 if header == "shardq-queue" else 1), (orders, seen)):
            found = web.get(f"{API}/messages/orders.dead", params={"header": header}).json()
            assert (found["matching"], len(found["messages"])) == (count, count)
    removal = orders.post(f"{API}/remove-matching/orders.dead", json={"header": "shardq-queue=wages"})
    assert removal.json()["changed"] == 0


def test_a_step_names_no_hidden_queue_of_its_workflow(log_in, client, url) -> None:
    from shardq.tasks import Tasks, chain

    app = Tasks(url)

    @app.task(queue="wages")
    def count() -> int:
        return 2

    @app.task(queue="orders")
    def ship() -> None:
        raise AssertionError

    chain(count.signature(), ship.signature()).send(name="nightly")
    app.drain(queues=["wages"])
    app.close()
    (message,) = client.queue("orders").peek(10)
    assert "wages" in str(message.headers)
    web = log_in("orders*")
    for path in ("tasks", "tasks?queue=orders", "messages/orders", f"message/{message.id}"):
        answer = web.get(f"{API}/{path}")
        assert (answer.status_code, "wages" in answer.text) == (200, False), path
    assert web.get(f"{API}/tasks").json()["tasks"][0]["id"] == "#1"


def test_a_hidden_schedule_is_answered_as_one_that_does_not_exist(log_in, client) -> None:
    client.create_queue("wages")
    client.schedules.create("pay", queue="wages", every=60)
    web = log_in("orders*")
    for action in ("pause", "resume", "trigger"):
        texts = [
            web.post(f"{API}/schedules/{action}", json={"id": name}).json()["detail"].replace(name, "ID")
            for name in ("pay", "buy")
        ]
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("pattern", "seen"),
    [
        ("mail/*", ["mail/a"]),
        ("mail/**", ["mail/a", "mail/a/b"]),
        ("mail", ["mail"]),
        ("**", ["mail", "mail/a", "mail/a/b"]),
        ("*", ["mail"]),
    ],
)
def test_patterns_of_keys_are_those_of_queues_elsewhere(
    log_in, client, pattern: str, seen: list[str]
) -> None:
    for name in ("mail", "mail/a", "mail/a/b"):
        client.create_queue(name, max_deliveries=None)
    assert [each["name"] for each in log_in(pattern).get(f"{API}/queues").json()["queues"]] == seen


@pytest.mark.parametrize("pattern", ["orders?", "[ab]*", "***", "_shardq/*", "a b"])
def test_a_pattern_that_no_queue_can_match_is_refused(keys, pattern: str) -> None:
    with pytest.raises(shardq.InvalidName, match="pattern"):
        keys.create("ops", "read", [pattern])
    assert keys.keys() == ()


def test_queues_that_shardq_makes_for_itself_are_unknown_but_those_of_subscriptions(
    log_in, client, web
) -> None:
    topic = client.create_topic("news")
    topic.subscribe("archive")
    client.semaphore("smtp", permits=2)
    internal = client.queues("_shardq/")
    (subscribed,) = (name for name in internal if "/archive/" in name and not name.endswith(".dead"))
    keyed, other = log_in("news"), log_in("orders*")
    for name in internal:
        if "/archive/" in name:
            continue
        for service in (web, keyed):
            assert service.get(f"{API}/queues/{name}").status_code == 404, name
            assert service.get(f"{API}/messages/{name}").status_code == 404, name
            assert service.post(f"{API}/messages/{name}", json={"body": "x"}).status_code == 404, name
            assert service.patch(f"{API}/queues/{name}", json={"settings": {}}).status_code == 404, name
            assert service.post(f"{API}/purge/{name}", json={"confirm": name}).status_code == 404, name
            assert service.delete(f"{API}/queues/{name}", params={"confirm": name}).status_code == 404, name
    assert [service.get(f"{API}/queues/{subscribed}").status_code for service in (web, keyed, other)] == [
        200, 200, 404,
    ]  # fmt: skip
    refused = web.delete(f"{API}/queues/{subscribed}", params={"confirm": subscribed})
    assert (refused.status_code, "shardq subscription delete" in refused.json()["detail"]) == (400, True)
    assert web.post(f"{API}/queues", json={"name": "_shardq/topics/news/more/1"}).status_code == 400
    assert client.queues("_shardq/") == internal
