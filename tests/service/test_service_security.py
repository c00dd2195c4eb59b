"""Who may do what, what is refused before it is read, and what is logged."""

from __future__ import annotations

import json
import logging
import stat

import msgspec
import pytest

import shardq
from shardq.errors import InvalidSetting
from shardq.service import Grant, KeyFile, ServePlan, ServiceOptions

API = "/api/v1"


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_the_file_of_keys_has_no_secret_and_is_readable_for_its_owner_only(keys) -> None:
    key = keys.create("ops", "manage")
    secret = key.split("_", 2)[2]
    assert secret not in keys.path.read_text()
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert keys.find(key).grant == Grant("ops", "manage")
    assert keys.find(key[:-1]) is None
    assert keys.find("") is None


def test_a_revoked_key_ends_at_the_next_request(serve, keys) -> None:
    key, other = keys.create("ops", "read"), keys.create("else", "read")
    web = serve(keys=str(keys.path))
    assert web.get(f"{API}/queues", headers=_bearer(key)).status_code == 200
    assert KeyFile(keys.path).revoke(keys.find(key).id)
    assert web.get(f"{API}/queues", headers=_bearer(key)).status_code == 401
    assert web.get(f"{API}/queues", headers=_bearer(other)).status_code == 200


def test_keys_that_are_all_revoked_open_nothing(serve, keys) -> None:
    key = keys.create("ops", "manage")
    web = serve(keys=str(keys.path))
    keys.revoke(keys.find(key).id)
    assert web.get(f"{API}/queues").status_code == 401
    keys.path.unlink()
    assert web.get(f"{API}/queues").status_code == 401


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"authorization": "Bearer x"},
        {"authorization": "Basic eA=="},
    ],
)
def test_without_a_known_key_nothing_is_shown_but_health(serve, keys, given) -> None:
    keys.create("ops", "read")
    web = serve(keys=str(keys.path))
    for path in ("/queues", "/overview", "/system", "/messages/orders"):
        assert web.get(f"{API}{path}", headers=given).status_code == 401
    assert web.get("/livez").status_code == 200


def test_roles_allow_what_they_say(serve, keys, orders) -> None:
    by_role = {role: keys.create(role, role) for role in ("read", "act", "manage")}
    web = serve(keys=str(keys.path))

    def allowed(method: str, path: str, body: object = None) -> list[str]:
        answers = {
            role: web.request(method, f"{API}{path}", json=body, headers=_bearer(key)).status_code
            for role, key in by_role.items()
        }
        assert set(answers.values()) <= {200, 403}
        return [role for role, status in answers.items() if status == 200]

    assert allowed("GET", "/queues/orders") == ["read", "act", "manage"]
    assert allowed("POST", "/messages/orders", {"body": "1"}) == ["act", "manage"]
    assert allowed("POST", "/redrive/orders.dead", {}) == ["act", "manage"]
    assert allowed("POST", "/pause/orders", {}) == ["manage"]
    assert allowed("POST", "/purge/orders", {"confirm": "orders"}) == ["manage"]


def test_a_key_sees_only_the_queues_of_its_patterns(serve, keys, orders, url) -> None:
    with shardq.connect(url) as client:
        client.create_queue("wages").producer().send(b"1")
        client.schedules.create("pay", queue="wages", every=60)
        identity = client.queue("wages").peek(1)[0].id
    key = keys.create("ops", "manage", ["orders*"])
    web = serve(keys=str(keys.path))
    web.headers.update(_bearer(key))
    assert [each["name"] for each in web.get(f"{API}/queues").json()["queues"]] == ["orders", "orders.dead"]
    assert web.get(f"{API}/overview").json()["queues"] == 2
    assert web.get(f"{API}/schedules").json()["schedules"] == []
    hidden = web.get(f"{API}/queues/wages")
    absent = web.get(f"{API}/queues/other")
    assert hidden.status_code == absent.status_code == 404
    for path in (
        f"/message/{identity}",
        f"/trace/{identity}",
        "/messages/wages",
        "/shards/wages",
        "/tasks?queue=wages",
    ):
        assert web.get(f"{API}{path}").status_code == 404, path
    assert web.post(f"{API}/schedules/trigger", json={"id": "pay"}).status_code == 404
    assert web.post(f"{API}/queues", json={"name": "wages2"}).status_code == 404


def test_a_key_sends_dead_letters_to_no_queue_that_it_does_not_see(serve, keys, orders, url) -> None:
    with shardq.connect(url) as client:
        client.create_queue("wages")
    web = serve(keys=str(keys.path))
    web.headers.update(_bearer(keys.create("ops", "manage", ["orders*"])))
    settings = {"dead_letter_queue": "wages"}
    assert web.patch(f"{API}/queues/orders", json={"settings": settings}).status_code == 404
    assert web.post(f"{API}/queues", json={"name": "orders2", "settings": settings}).status_code == 404
    assert orders.settings.dead_letter_queue is None


def test_a_trace_names_no_queue_that_a_key_does_not_see(serve, keys, orders, url) -> None:
    orders.alter(events=60)
    with shardq.connect(url) as client:
        client.create_queue("wages")
        queue = client.queue("orders")
        identity = queue.producer().send(b"1")
        with queue.consumer() as consumer:
            consumer.receive(1, wait=5).forward("wages")
        queue.trace(identity)  # so that all is written
    web = serve(keys=str(keys.path))
    path = f"{API}/trace/{identity}"
    assert "wages:" in web.get(path, headers=_bearer(keys.create("all", "read"))).text
    assert "wages:" not in web.get(path, headers=_bearer(keys.create("ops", "read", ["orders*"]))).text


def test_dead_letters_do_not_go_back_to_queues_that_a_key_does_not_see(
    serve, keys, orders, dead, make_letters
) -> None:
    make_letters(1, "bank")
    key = keys.create("ops", "act", ["orders.dead"])
    web = serve(keys=str(keys.path))
    assert web.post(f"{API}/redrive/orders.dead", json={}, headers=_bearer(key)).json()["changed"] == 0
    assert dead.counts().ready == 1


def test_a_service_that_only_reads_refuses_every_action(serve, orders) -> None:
    web = serve(read_only=True)
    assert web.get(f"{API}/queues/orders").status_code == 200
    assert web.post(f"{API}/messages/orders", json={"body": "1"}).status_code == 403
    assert web.post(f"{API}/queues", json={"name": "other"}).status_code == 403
    assert orders.counts().ready == 0


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost:80:80", "", "[::1", "localhost@evil"]
)
def test_other_hosts_are_refused_but_for_health(web, orders, host: str) -> None:
    assert web.get(f"{API}/queues", headers={"host": host}).status_code == 421
    assert web.get("/livez/", headers={"host": host}).status_code == 421
    assert web.get("/livez", headers={"host": host}).status_code == 200
    assert web.get("/readyz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8765", "[::1]:80", "LOCALHOST"])
def test_hosts_of_this_machine_are_answered(web, host: str) -> None:
    assert web.get(f"{API}/queues", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"origin": "http://localhost:81"},
        {"origin": "file://localhost"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_what_pages_of_other_sites_send_is_refused(web, orders, headers: dict[str, str]) -> None:
    answer = web.post(f"{API}/messages/orders", json={"body": "1"}, headers=headers)
    assert answer.status_code == 403
    assert web.get(f"{API}/queues", headers=headers).status_code == 403
    assert orders.counts().ready == 0


def test_an_action_needs_json_so_a_form_of_another_site_does_nothing(web, orders) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = web.post(f"{API}/messages/orders", content=b'{"body": "1"}', headers={"content-type": kind})
        assert answer.status_code == 415


def test_sizes_are_checked_before_anything_is_read(web, orders) -> None:
    path, json_type = f"{API}/messages/orders", {"content-type": "application/json"}
    claimed = web.post(path, content=b"{}", headers={**json_type, "content-length": "99999999999"})
    assert claimed.status_code == 413

    def chunks():
        for _ in range(40):
            yield b" " * 65_536

    assert web.post(path, content=chunks(), headers=json_type).status_code == 413
    assert web.get(f"{API}/queues?search={'x' * 9_000}").status_code == 413
    for path, allowed in (
        ("/livez", {"GET", "HEAD"}),
        (f"{API}/purge/orders", {"POST"}),
        (f"{API}/queues/orders", {"GET", "HEAD", "PATCH", "DELETE"}),
    ):
        for method in ("TRACE", "OPTIONS", "PUT", "QUERY"):
            answer = web.request(method, path)
            assert (answer.status_code, set(answer.headers["allow"].split(", "))) == (405, allowed)
    assert web.get("/livez", headers={"content-length": "-1"}).status_code == 400
    both = {"content-length": "2", "transfer-encoding": "chunked"}
    assert web.post(path, content=b"{}", headers={**json_type, **both}).json()["code"] == "two_lengths"


def test_every_answer_has_the_headers_of_a_safe_page(web) -> None:
    for path in ("/livez", f"{API}/queues", "/nothing", f"{API}/queues?size=x"):
        headers = web.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_actions_are_logged_with_who_did_what_and_without_bodies(serve, keys, orders, caplog) -> None:
    key = keys.create("ops", "act")
    web = serve(keys=str(keys.path))
    with caplog.at_level(logging.INFO, "shardq.service.audit"):
        web.post(
            f"{API}/messages/orders",
            json={"body": "secret", "headers": {"h": "secret"}},
            headers=_bearer(key),
        )
        web.post(f"{API}/purge/orders", json={"confirm": "orders"}, headers=_bearer(key))
    sent, refused = (json.loads(record.message) for record in caplog.records)
    assert (sent["key"], sent["action"], sent["on"], sent["outcome"]) == ("ops", "send", "orders", "done")
    assert (refused["action"], refused["outcome"]) == ("purge", "forbidden")
    assert "secret" not in caplog.text
    assert key not in caplog.text


def test_the_log_of_an_action_has_the_number_of_changes(serve, make_letters, caplog) -> None:
    make_letters(2, "bank")
    web = serve()
    with caplog.at_level(logging.INFO, "shardq.service.audit"):
        for reason in ("disk", "bank"):
            web.post(f"{API}/redrive/orders.dead", json={"reason": reason})
        web.post(f"{API}/redrive/nothing", json={})
    logged = [json.loads(record.message) for record in caplog.records]
    assert [(each["outcome"], each.get("changed")) for each in logged] == [
        ("done", 0), ("done", 2), ("queue_not_found", None),
    ]  # fmt: skip


def test_a_mask_decides_what_is_shown_of_a_body(serve, orders) -> None:
    with orders.producer() as producer:
        ids = [producer.send(each) for each in (b"card pin-4711", b"hide", b"fail")]

    def mask(queue: str, body: bytes) -> str | None:
        assert queue == "orders"
        if body == b"fail":
            raise ValueError(body)
        return None if body == b"hide" else body.decode().replace("pin-4711", "****")

    web = serve(mask=mask)
    shown = [web.get(f"{API}/message/{each}?body=true").json() for each in ids]
    assert [each["body"] for each in shown] == ["card ****", None, None]
    assert [each["encoding"] for each in shown] == ["text", "masked", "masked"]
    assert "pin-4711" not in web.get(f"{API}/messages/orders?bodies=true").text


@pytest.mark.parametrize(
    ("returned", "encoding", "shown"),
    [
        (object(), "masked", None),
        ({"n": {"a": object()}}, "masked", None),
        ("\ud800", "text", "?"),
        ({"n": "\ud800"}, "masked", None),
        (bytearray(b"x"), "text", "x"),
        ({"n": 1}, "json", {"n": 1}),
        (7, "text", "7"),
        (["x" * 100_000], "text", '["' + "x" * 65_534),
    ],
    ids=["object", "inner-object", "surrogate", "inner-surrogate", "bytearray", "dict", "number", "large"],
)
def test_whatever_a_mask_returns_is_shown_or_hidden(serve, orders, returned, encoding, shown) -> None:
    with orders.producer() as producer:
        identity = producer.send(b"card pin-4711")
    web = serve(mask=lambda _queue, _body: returned, ui=True)
    found = web.get(f"{API}/message/{identity}?body=true").json()
    assert (found["encoding"], found["body"]) == (encoding, shown)
    for path in (f"/message/{identity}?body=true", "/messages/orders?bodies=true"):
        assert web.get(path).status_code == 200, path


def test_a_mask_is_called_with_the_queue_that_stores_the_message(serve, orders, make_letters) -> None:
    make_letters(1, "bank")
    called = []
    web = serve(mask=lambda queue, _body: called.append(queue))
    web.get(f"{API}/dead-letters/orders.dead?bodies=true")
    assert called == ["orders.dead"]


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "192.0.2.1", "::", "", "example.com", "127.example.com", "localhost.example.com"]
)
def test_other_addresses_are_bound_only_with_keys_or_when_it_is_said(host: str, keys) -> None:
    plan = ServePlan(url="sqlite:///queue.db", host=host)
    with pytest.raises(InvalidSetting, match="--insecure"):
        plan.check()
    msgspec.structs.replace(plan, insecure=True).check()
    msgspec.structs.replace(plan, host="127.0.0.9").check()
    with_keys = msgspec.structs.replace(plan, options=ServiceOptions(keys=str(keys.path)))
    with pytest.raises(InvalidSetting, match="does not exist"):
        with_keys.check()
    keys.path.write_text("[]")
    with pytest.raises(InvalidSetting, match="has no key"):
        with_keys.check()
    keys.create("ops", "read")
    with_keys.check()


def test_a_name_of_a_proxy_is_allowed_only_with_keys_or_when_it_is_said(keys) -> None:
    plan = ServePlan(url="sqlite:///queue.db", allow_hosts=("localhost", "queues.example.com"))
    with pytest.raises(InvalidSetting, match=r"allow_host='queues\.example\.com'.*--insecure"):
        plan.check()
    msgspec.structs.replace(plan, insecure=True).check()
    msgspec.structs.replace(plan, allow_hosts=("localhost",)).check()
    keys.create("ops", "read")
    msgspec.structs.replace(plan, options=ServiceOptions(keys=str(keys.path))).check()


@pytest.mark.parametrize("text", ["{", "[1]", '[{"id": 1}]', "\xff"])
def test_a_damaged_file_of_keys_is_told_and_opens_nothing(serve, keys, text: str) -> None:
    key = keys.create("ops", "read")
    keys.path.write_text(text, encoding="latin-1")
    with pytest.raises(InvalidSetting, match="cannot be read"):
        keys.keys()
    answer = serve(keys=str(keys.path)).get(f"{API}/queues", headers=_bearer(key))
    assert (answer.status_code, answer.json()["code"]) == (503, "keys_unreadable")
    assert str(keys.path) not in answer.text
