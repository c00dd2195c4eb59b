"""Logins, sessions and the tokens of forms."""

from __future__ import annotations

import json
import logging
from html import unescape

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from shardq.service import Service, ServiceOptions
from tests.service.forms import do, token_of


@pytest.mark.parametrize("token", ["", "0" * 64, None])
def test_a_form_without_the_token_of_its_session_does_nothing(ui, orders, token: str | None) -> None:
    ui.get("/queues/orders")
    fields = {"body": "1"} if token is None else {"body": "1", "csrf": token}
    assert ui.post("/do/send/orders", data=fields).status_code == 403
    assert orders.counts().ready == 0


def test_a_token_of_another_session_does_nothing(serve, keys, orders) -> None:
    key = keys.create("ops", "act")
    ui = serve(ui=True, keys=str(keys.path))
    ui.post("/login", data={"key": key})
    token = token_of(ui.get("/queues/orders").text)
    ui.post("/login", data={"key": key})
    assert ui.post("/do/send/orders", data={"body": "1", "csrf": token}).status_code == 403
    assert orders.counts().ready == 0


def test_a_cookie_that_was_changed_opens_nothing(serve, keys) -> None:
    ui = serve(ui=True, keys=str(keys.path))
    ui.post("/login", data={"key": keys.create("ops", "read")})
    ((name, cookie),) = ui.cookies.items()
    other = keys.find(keys.create("other", "manage")).id
    identity, expires, *rest = cookie.split(".")
    ui.cookies.clear()
    for changed in (
        ".".join((other, expires, *rest)),
        ".".join((identity, str(int(expires) + 1), *rest)),
        cookie[:-1],
        "local.9999999999.aa.bb",
    ):
        answer = ui.get("/api/v1/queues", headers={"cookie": f"{name}={changed}"})
        assert answer.status_code == 401, changed
    assert ui.get("/api/v1/queues", headers={"cookie": f"{name}={cookie}"}).status_code == 200


def _browsing(*services: TestClient) -> None:
    """Let services have the cookies of one browser, as those of one host have."""
    for service in services[1:]:
        service.cookies.jar = services[0].cookies.jar


def test_services_of_one_host_leave_the_forms_of_each_other_valid(serve, orders) -> None:
    ui, other = serve(ui=True), serve(ui=True)
    _browsing(ui, other)
    token = token_of(ui.get("/queues/orders").text)
    other.get("/queues/orders")
    ui.get("/queues/orders")
    ui.post("/do/send/orders", data={"body": "1", "csrf": token})
    assert orders.counts().ready == 1


def test_a_login_to_one_service_of_a_host_ends_no_session_of_another(serve, keys) -> None:
    key = keys.create("ops", "act")
    ui, other = serve(ui=True, keys=str(keys.path)), serve(ui=True, keys=str(keys.path))
    _browsing(ui, other)
    for service in (ui, other):
        service.post("/login", data={"key": key})
    assert [service.get("/api/v1/queues").status_code for service in (ui, other)] == [200, 200]
    ui.post("/logout", data={"csrf": token_of(ui.get("/").text)})
    assert [service.get("/api/v1/queues").status_code for service in (ui, other)] == [401, 200]


def test_over_https_no_other_host_of_the_domain_can_set_the_cookie_of_a_session(url, keys) -> None:
    key = keys.create("ops", "read")
    service = Service(url, ServiceOptions(ui=True, keys=str(keys.path), hosts=("localhost",)))
    for app, prefix, name in (
        (service, "", "__Host-"),
        (Starlette(routes=[Mount("/pages", app=service)]), "/pages", "__Secure-"),
    ):
        with TestClient(app, base_url="https://localhost") as web:
            answer = web.post(f"{prefix}/login", data={"key": key}, follow_redirects=False)
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith(name), cookie
            assert "Secure" in cookie
            assert web.get(f"{prefix}/api/v1/queues").status_code == 200
            web.post(f"{prefix}/logout", data={"csrf": token_of(web.get(f"{prefix}/").text)})
            assert web.get(f"{prefix}/api/v1/queues").status_code == 401


def test_a_login_turns_a_key_into_a_cookie_and_a_logout_ends_it(serve, keys, orders) -> None:
    key = keys.create("ops", "act")
    ui = serve(ui=True, keys=str(keys.path))
    asked = ui.get("/queues/orders?by=age", follow_redirects=False)
    assert asked.headers["location"] == "/login?next=%2Fqueues%2Forders%3Fby%3Dage"
    assert ui.post("/login", data={"key": key + "x"}).status_code == 401
    answer = ui.post("/login", data={"key": key, "next": "/queues/orders"}, follow_redirects=False)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert key.split("_", 2)[2] not in cookie
    page = ui.get("/queues/orders").text
    assert "ops (act)" in page
    assert "Send a message" in page
    assert "Purge" not in page
    assert "sent orders:" in do(ui, "/queues/orders", "send/orders", body="1").text
    assert "needs one with manage" in unescape(do(ui, "/queues/orders", "pause/orders").text)
    ui.post("/logout", data={"csrf": token_of(page)})
    assert ui.get("/queues/orders", follow_redirects=False).status_code == 303


def test_logins_are_logged_without_the_key(serve, keys, caplog) -> None:
    key = keys.create("ops", "read")
    ui = serve(ui=True, keys=str(keys.path))
    with caplog.at_level(logging.INFO, "shardq.service.audit"):
        ui.post("/login", data={"key": key + "x"})
        ui.post("/login", data={"key": key})
    logged = [
        json.loads(record.message) for record in caplog.records if record.name == "shardq.service.audit"
    ]
    assert [(each["key"], each["outcome"]) for each in logged] == [("unknown", "refused"), ("ops", "done")]
    assert key.split("_", 2)[2] not in caplog.text


def test_logins_with_wrong_keys_do_not_fill_the_audit_log(serve, keys, caplog) -> None:
    key = keys.create("ops", "read")
    ui = serve(ui=True, keys=str(keys.path))
    with caplog.at_level(logging.INFO, "shardq.service.audit"):
        statuses = {ui.post("/login", data={"key": "x"}).status_code for _ in range(300)}
        ui.post("/login", data={"key": key})
    assert statuses == {401}
    outcomes = [json.loads(record.message)["outcome"] for record in caplog.records]
    assert outcomes[0] == "refused"
    assert outcomes[-1] == "done"
    assert len(outcomes) < 100


def test_a_session_ends_with_its_key_and_is_of_no_other_service(serve, keys, orders) -> None:
    key = keys.create("ops", "read")
    ui, other = serve(ui=True, keys=str(keys.path)), serve(ui=True, keys=str(keys.path))
    ui.post("/login", data={"key": key})
    assert ui.get("/api/v1/queues").status_code == 200
    other.cookies = ui.cookies
    assert other.get("/api/v1/queues").status_code == 401
    keys.revoke(keys.find(key).id)
    assert ui.get("/api/v1/queues").status_code == 401


def test_an_action_of_the_api_by_cookie_needs_the_token(serve, keys, orders) -> None:
    ui = serve(ui=True, keys=str(keys.path))
    key = keys.create("ops", "act")
    ui.post("/login", data={"key": key})
    assert ui.post("/api/v1/messages/orders", json={"body": "1"}).status_code == 403
    token = token_of(ui.get("/queues/orders").text)
    answer = ui.post("/api/v1/messages/orders", json={"body": "1"}, headers={"x-csrf-token": token})
    assert answer.status_code == 200
