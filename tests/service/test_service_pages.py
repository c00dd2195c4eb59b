"""The pages of the dashboard, as a browser gets them."""

from __future__ import annotations

import re
from html import unescape

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import shardq
from shardq.cli.commands.doctor import examine
from shardq.service import Service, ServiceOptions
from tests.service.forms import do, token_of

NAMES = (
    "queues",
    "dead-letters",
    "consumers",
    "tasks",
    "workflows",
    "schedules",
    "topics",
    "limits",
    "system",
)
PAGES = ["/", *(f"/{name}" for name in NAMES)]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_a_fresh_store_says_what_to_do_next(ui, path: str) -> None:
    page = ui.get(path)
    assert page.status_code == 200
    assert 'class="empty"' in page.text or path == "/system"


def test_pages_show_exact_numbers_and_absolute_times(ui, orders) -> None:
    with orders.producer() as producer:
        producer.send_many([b"1"] * 12_345)
    text = ui.get("/queues/orders").text
    assert "12,345" in text
    assert re.search(
        r'<time datetime="[^"]+" title="\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ UTC">[^<]+ ago</time>', text
    )
    assert text.count('class="heat-9"') >= 1


def test_one_thing_is_written_as_one(ui, make_letters) -> None:
    make_letters(1, "bank")
    overview, letters = ui.get("/").text, ui.get("/dead-letters/orders.dead").text
    for pattern in (r"<b>1</b> dead letter<", r"<b>2</b> queues<", r"orders: 1 dead letter<"):
        assert re.search(pattern, overview), pattern
    assert "1 letter<" in letters
    assert "0 letters" in unescape(ui.get("/dead-letters/orders.dead?reason=x").text)


def test_bodies_are_shown_only_when_they_are_asked_for(ui, orders) -> None:
    with orders.producer() as producer:
        identity = producer.send(b'{"card": ["pin-4711"]}')
    assert "pin-4711" not in ui.get("/messages/orders").text
    assert "pin-4711" not in ui.get(f"/message/{identity}").text
    assert "pin-4711" in ui.get("/messages/orders?bodies=true").text
    assert "<b>card</b>" in ui.get(f"/message/{identity}?body=true").text


def test_nothing_that_is_shown_becomes_markup(ui, orders) -> None:
    evil = "<script>alert(1)</script>\"'&"
    with orders.producer() as producer:
        identity = producer.send(
            f'{{"{evil[:8]}": "{evil[:25]}"}}'.encode(), headers={evil: evil}, group=evil
        )
        producer.send(evil.encode())
    with orders.consumer(name="mallory") as consumer:
        consumer.receive(1, wait=5).dead_letter(evil)
    for path in (
        f"/message/{identity}?body=true",
        "/messages/orders?bodies=true",
        "/messages/orders?header=<script>alert(1)</script>",
        "/dead-letters/orders.dead?bodies=true",
        "/queues?search=<script>alert(1)</script>",
        "/queues/<script>alert(1)</script>",
    ):
        assert "<script>alert" not in ui.get(path).text, path


def test_pages_have_no_inline_code_or_style_and_name_no_other_host(ui, orders) -> None:
    with orders.producer() as producer:
        producer.send(b"1")
    for path in [*PAGES, "/queues/orders", "/messages/orders", "/login"]:
        text = ui.get(path).text
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=|javascript:", text), path
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text), path


def test_files_of_other_projects_come_with_their_licences(ui) -> None:
    for name in (
        "htmx-2.0.11.min.js",
        "uplot-1.6.32.min.js",
        "LICENSE.htmx",
        "LICENSE.uplot",
        "NOTICE",
        "dashboard.js",
    ):
        assert ui.get(f"/static/{name}").status_code == 200


def test_a_message_is_sent_from_a_form(ui, orders) -> None:
    fields = {
        "body": "hällo",
        "encoding": "text",
        "headers": "kind: new\nn: 1",
        "priority": "2",
        "group": "",
        "ttl": "",
    }
    page = do(ui, "/queues/orders", "send/orders", **fields)
    assert "sent orders:" in page.text
    (message,) = orders.peek(5)
    assert (message.body.decode(), message.headers, message.priority) == (
        "hällo",
        {"kind": "new", "n": "1"},
        2,
    )
    assert "sent orders:" not in ui.get("/queues/orders").text


def test_a_queue_is_created_paused_altered_and_purged_by_forms(ui, url) -> None:
    page = do(
        ui, "/queues", "create_queue", name="a/b", **{"setting.shards": "3", "setting.max_deliveries": ""}
    )
    assert "a/b" in page.text
    with shardq.connect(url) as client:
        queue = client.queue("a/b")
        assert queue.settings.shards == 3
        do(ui, "/queues/a%2Fb", "pause/a%2Fb", delivery="true", sends="false")
        assert "deliveries paused" in ui.get("/queues/a%2Fb").text
        do(ui, "/queues/a%2Fb", "resume/a%2Fb")
        do(ui, "/queues/a%2Fb", "alter_queue/a%2Fb", setting_name="retention", setting_value="60")
        assert client.queue("a/b").counts().ready == 0
        queue.producer().send_many([b"1"] * 3)
        wrong = do(ui, "/queues/a%2Fb", "purge/a%2Fb", confirm="a")
        assert "type the name of the queue" in unescape(wrong.text)
        assert queue.counts().ready == 3
        assert "3 changed" in do(ui, "/queues/a%2Fb", "purge/a%2Fb", confirm="a/b").text
    with shardq.connect(url) as client:
        assert client.queue("a/b").settings.retention == 60


def test_dead_letters_are_redriven_and_removed_by_forms(ui, orders, dead, make_letters) -> None:
    first, second, *_ = make_letters(4, "the bank is closed")
    page = ui.get("/dead-letters/orders.dead").text
    assert "the bank is closed" in page
    path = "/dead-letters/orders.dead"
    assert "1 changed" in do(ui, path, "redrive/orders.dead", ids=first).text
    assert "1 changed" in do(ui, path, "remove_messages/orders.dead", ids=second).text
    assert "2 changed" in do(ui, path, "redrive/orders.dead", reason="the bank is closed", source="").text
    assert (orders.counts().ready, dead.counts().ready) == (3, 0)


def test_messages_that_match_the_filter_are_removed_and_no_others(ui, orders) -> None:
    with orders.producer() as producer:
        for kind, priority in (("a", 0), ("a", 4), ("b", 0)):
            producer.send(b"1", headers={"kind": kind}, priority=priority)
    assert "Remove those that match" not in ui.get("/messages/orders").text
    path = "/messages/orders?header=kind%3Da&priority=0"
    page = ui.get(path).text
    form = page[page.index("/do/remove_matching/orders") :].partition("</form>")[0]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    assert "1 changed" in ui.post("/do/remove_matching/orders", data=fields).text
    left = sorted((each.headers["kind"], each.priority) for each in orders.peek(5))
    assert left == [("a", 4), ("b", 0)]


def test_links_of_a_page_keep_a_filter_for_priority_0(ui, orders) -> None:
    with orders.producer() as producer:
        producer.send_many([b"1"] * 3, priority=0)
    assert "?priority=0&amp;size=1&amp;page=2" in ui.get("/messages/orders?priority=0&size=1").text


@pytest.mark.parametrize(
    "back", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x", "", "/\r\nx"]
)
def test_an_action_leads_back_to_pages_of_the_service_only(ui, orders, back: str) -> None:
    token = token_of(ui.get("/queues/orders").text)
    fields = {"csrf": token, "body": "1", "back": back}
    answer = ui.post("/do/send/orders", data=fields, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_service_that_only_reads_shows_no_forms_that_change(serve, orders) -> None:
    ui = serve(ui=True, read_only=True)
    page = ui.get("/queues/orders").text
    assert "read only" in page
    assert "/do/" not in page


def test_a_store_that_cannot_be_read_is_shown_and_the_page_goes_on_later(serve, tmp_path) -> None:
    file = tmp_path / "queue.db"
    file.write_bytes(b"no database" * 1_000)
    ui = serve(ui=True, at=f"sqlite:///{file}")
    page = ui.get("/queues")
    assert page.status_code == 503
    assert 'id="live"' in page.text
    file.unlink()
    ui.post("/api/v1/queues", json={"name": "orders"})
    assert "orders" in ui.get("/queues").text


def test_the_checks_of_doctor_are_shown_for_the_queues_that_a_key_sees(
    serve, keys, orders, make_letters
) -> None:
    make_letters(1, "x")
    make_key = keys.create("all", "read"), keys.create("none", "read", ["other"])
    ui = serve(ui=True, keys=str(keys.path), doctor=examine)
    answers = [
        ui.get("/api/v1/checks", headers={"authorization": f"Bearer {key}"}).json() for key in make_key
    ]
    wrong = [
        {each["subject"] for each in answer["findings"] if each["state"] == "wrong"} for answer in answers
    ]
    assert "orders" in wrong[0]
    assert {each["subject"] for each in answers[1]["findings"]} == {"store"}
    ui.post("/login", data={"key": make_key[0]})
    assert "Check all queues too" in ui.get("/system").text
    assert "1 in orders.dead" in ui.get("/checks").text


def test_pages_under_a_prefix_link_below_it(url) -> None:
    app = Starlette(routes=[Mount("/queue-pages", app=Service(url, ServiceOptions(ui=True)))])
    with TestClient(app, base_url="http://localhost") as web:
        text = web.get("/queue-pages/").text
        links = re.findall(r'(?:src|href|action)="(/[^"]*)"', text)
        assert links
        assert all(link.startswith("/queue-pages/") for link in links)
        assert web.get("/queue-pages/static/dashboard.css").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/queues?page=0",
        "/queues?unknown=1",
        "/queues/%00",
        "/message/x",
        "/messages/orders?priority=x",
        "/do/nothing",
        "/workflows/x",
        "/dead-letters/~",
        "/static/../../pyproject.toml",
        "/static/%2e%2e/pages.py",
    ],
)
def test_wrong_addresses_are_pages_that_say_so(ui, orders, path: str) -> None:
    assert ui.get(path).status_code in (400, 404, 405)


def test_a_name_with_a_hyphen_is_confirmed_by_an_expression_that_scripts_can_read(ui, url) -> None:
    with shardq.connect(url) as client:
        client.create_queue("mail-eu.new")
    page = ui.get("/queues/mail-eu.new").text
    assert page.count(r'pattern="mail-eu\.new"') == 2  # to purge and to delete
