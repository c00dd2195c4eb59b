"""Whatever is sent, the answer is never that the service has broken."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shardq.service.endpoints import ACTIONS, ENDPOINTS, Endpoint
from shardq.service.forms import COOKIE as FLASH_COOKIE
from tests.service.forms import token_of

TRIES = 60
QUIET = settings(max_examples=TRIES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

names = st.sampled_from(
    ["orders", "orders.dead", "a/b", "_shardq/x", "~", "é", "orders:0:0:" + "0" * 32 + ":0"]
) | st.text(max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["1", "true", "orders"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)

setting_names = st.sampled_from(["name", "self", "exist_ok", "shards", "dead_letter_queue", "\0"]) | st.text(
    max_size=8
)


def _fields(endpoint: Endpoint) -> st.SearchStrategy[dict[str, Any]]:
    known = st.sampled_from([*endpoint.given.__struct_fields__, "unknown"])
    some = st.dictionaries(known, values, max_size=4)
    if "settings" not in endpoint.given.__struct_fields__:
        return some
    whole = st.fixed_dictionaries({"settings": st.dictionaries(setting_names, scalars, max_size=2)})
    named = (
        st.fixed_dictionaries({"name": names}) if "name" in endpoint.given.__struct_fields__ else st.just({})
    )
    return some | st.builds(lambda one, other: {**one, **other}, whole, named)


requests = st.sampled_from(ENDPOINTS).flatmap(
    lambda endpoint: st.tuples(st.just(endpoint), names, _fields(endpoint))
)


@QUIET
@given(requests)
@example((ACTIONS["create_queue"], "", {"name": "fresh", "settings": {"name": "x"}}))
@example((ACTIONS["create_queue"], "", {"name": "fresh", "settings": {"exist_ok": True}}))
@example((ACTIONS["alter_queue"], "orders", {"settings": {"self": "x"}}))
def _try(web: Any, request: tuple[Endpoint, str, dict[str, Any]]) -> None:
    endpoint, name, fields = request
    path = "/api/v1" + endpoint.path.replace("{queue}", quote(name, safe="")).replace(
        "{id}", quote(name, safe="")
    )
    if endpoint.in_query:
        answer = web.request(endpoint.method, path, params={key: str(value) for key, value in fields.items()})
    else:
        content = json.dumps(fields).encode()
        answer = web.request(
            endpoint.method, path, content=content, headers={"content-type": "application/json"}
        )
    assert answer.status_code < 500, (endpoint.name, name, fields, answer.text)
    assert answer.status_code != 200 or msgspec.json.decode(answer.content) is not None


def test_no_parameters_of_any_endpoint_break_it(web, orders) -> None:
    with orders.producer() as producer:
        producer.send_many([b'{"n": 1}'] * 3, group="ada")
    _try(web)


own_fields = st.sampled_from(
    [
        "settings",
        "setting.",
        "setting.name",
        "setting.shards",
        "setting_name",
        "setting_value",
        "headers",
        "ids",
        "back",
    ]
)


@st.composite
def forms(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, str]]]:
    endpoint = draw(st.sampled_from(list(ACTIONS.values())))
    fields = own_fields | st.sampled_from([*endpoint.given.__struct_fields__, "unknown"])
    texts = st.sampled_from(["", "orders", "fresh", "1", "a: b", "[1]"]) | st.text(max_size=20)
    return endpoint.name, draw(names), draw(st.lists(st.tuples(fields, texts), max_size=6))


@QUIET
@given(forms())
@example(("alter_queue", "orders", [("settings", "x"), ("setting.shards", "3")]))
@example(("redrive", "orders.dead", [("ids", "x"), ("ids", "y"), ("settings", "x"), ("setting_name", "ids")]))
def _try_forms(web: Any, token: str, form: tuple[str, str, list[tuple[str, str]]]) -> None:
    action, name, fields = form
    body = urlencode([("csrf", token), *fields], errors="replace")
    kind = {"content-type": "application/x-www-form-urlencoded"}
    answer = web.post(
        f"/do/{action}/{quote(name, safe='')}", content=body, headers=kind, follow_redirects=False
    )
    assert answer.status_code < 500, (form, answer.text)


def test_no_fields_of_a_form_break_it(ui, orders) -> None:
    _try_forms(ui, token_of(ui.get("/queues").text))


@QUIET
@given(
    st.binary(max_size=40),
    st.sampled_from(["", "application/json", "application/x-www-form-urlencoded", "text/plain; charset=x"]),
    st.sampled_from(
        ["/api/v1/messages/orders", "/do/send/orders", "/login", "/logout", "/do/redrive/orders.dead"]
    ),
)
def _try_bytes(web: Any, body: bytes, kind: str, path: str) -> None:
    assert web.post(path, content=body, headers={"content-type": kind}).status_code < 500


def test_no_bytes_of_a_body_break_it(serve, orders) -> None:
    _try_bytes(serve(ui=True))


@QUIET
@given(
    st.sampled_from(
        [
            "/",
            "/queues",
            "/queues/orders",
            "/messages/orders",
            "/dead-letters/orders.dead",
            "/tasks",
            "/login",
        ]
    ),
    st.text(max_size=30),
    st.sampled_from(
        ["cookie", "origin", "authorization", "host", "sec-fetch-site", "content-length", "accept"]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30),
)
def _try_pages(web: Any, path: str, query: str, header: str, value: str) -> None:
    answer = web.get(f"{path}?{quote(query, safe='=&%')}", headers={header: value.encode("latin-1")})
    assert answer.status_code < 500


def test_a_cookie_that_is_nested_deeply_breaks_no_page(serve) -> None:
    nested = b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    cookie = base64.urlsafe_b64encode(nested).decode()
    assert serve(ui=True).get("/", headers={"cookie": f"{FLASH_COOKIE}={cookie}"}).status_code == 200


def test_no_query_and_no_header_of_a_page_breaks_it(serve, orders) -> None:
    _try_pages(serve(ui=True))
