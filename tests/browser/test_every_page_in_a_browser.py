"""Every page and every action of the dashboard in Chromium: both widths, both themes, two stores."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest
from playwright.sync_api import Browser, Page, expect

import shardq
from shardq.service import KeyFile
from shardq.service.page_contents import PAGES
from tests.browser.chromium import NARROW, WIDE, faults_of, open_page, use
from tests.browser.shop import LONG_NAME, ODD_NAME, open_shop
from tests.browser.site import Site, serving

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(900),
]  # minutes of keys and pages, on a slow machine

FURTHER = (
    "/login",
    "/queues?search=no-such-queue",
    "/queues?sort=age",
    "/queues/orders?by=age",
    "/queues/archive",
    f"/queues/{ODD_NAME.replace('/', '%2F')}",
    f"/queues/{LONG_NAME.replace('/', '%2F')}",
    "/messages/archive",
    "/messages/orders?state=in_flight",
    "/messages/orders?header=no",
    f"/messages/{ODD_NAME.replace('/', '%2F')}?bodies=true",
    "/dead-letters/orders.dead?reason=bank",
    "/dead-letters/archive.dead",
    "/tasks?state=failed",
    "/tasks?name=no-such-task",
    "/workflows?state=failed",
    "/workflows/pictures:0:0:01a2256246497e0c9c176410d43bb221:0",
)
"""Addresses with other contents of pages: filtered, empty, or of odd names."""

WRONG = ("/queues/no-such-queue", "/message/x", "/nowhere", "/queues?page=0")


SIGHTS = [(WIDE, "light"), (NARROW, "light"), (WIDE, "dark"), (NARROW, "dark")]


@pytest.fixture(params=["url", pytest.param("replica_set_url", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh store: on SQLite, and in a database of its own on a server."""
    url = str(request.getfixturevalue(request.param))
    if request.param == "url":
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path}{os.urandom(4).hex()}"))


@pytest.mark.parametrize(("width", "theme"), SIGHTS)
def test_every_page_with_data_is_accessible(browser: Browser, store, width, theme) -> None:
    with open_shop(store) as shop, serving(store, tick=None) as site:
        paths = [shop.path(each.path) for each in PAGES]
        paths += [f"/message/{shop.letter}?body=true", f"/message/{shop.message}", *FURTHER]
        assert _faults(browser, site, paths, width, theme) == {}


@pytest.mark.parametrize(("width", "theme"), SIGHTS)
def test_every_page_without_data_is_accessible_and_says_what_to_do(
    browser: Browser, url, width, theme
) -> None:
    with serving(url, tick=None) as site:
        paths = [each.path for each in PAGES if "{" not in each.path]
        assert _faults(browser, site, paths, width, theme) == {}
        with open_page(browser, site.address, width=width) as page:
            for path in paths:
                page.goto(path)
                shown = page.locator(".empty")
                assert path in ("/system", "/checks") or shown.locator("p, pre").first.is_visible(), path


def _faults(browser: Browser, site: Site, paths: list[str], width: int, theme: str) -> dict[str, list[str]]:
    faults = {}
    with open_page(browser, site.address, width=width, still=True, color_scheme=theme) as page:
        for path in paths:
            page.goto(path)
            if found := faults_of(page):
                faults[path] = found
    return faults


def test_pages_of_problems_are_accessible(browser: Browser, url) -> None:
    with serving(url, tick=None) as site:
        for path in WRONG:
            window = browser.new_context(base_url=site.address)
            with window:
                page = window.new_page()
                page.goto(path)
                expect(page.locator(".problem")).to_be_visible()
                assert faults_of(page) == []


def test_a_service_that_only_reads_offers_no_action_on_any_page(browser: Browser, url) -> None:
    with (
        open_shop(url) as shop,
        serving(url, tick=None, read_only=True) as site,
        open_page(browser, site.address) as page,
    ):
        for each in PAGES:
            page.goto(shop.path(each.path))
            expect(page.get_by_text("read only")).to_be_visible()
            assert page.locator("form[method=post]").count() == 0, each.path


def test_a_mask_hides_bodies_and_the_arguments_of_tasks(browser: Browser, url) -> None:
    def mask(queue: str, body: bytes) -> object:
        return None if queue == "orders" else {"hidden": len(body)}

    with (
        open_shop(url) as shop,
        serving(url, tick=None, mask=mask) as site,
        open_page(browser, site.address) as page,
    ):
        page.goto(f"/message/{shop.message}?body=true")
        expect(page.get_by_text("The mask of this service hides it.")).to_be_visible()
        page.goto("/messages/pictures?bodies=true")
        expect(page.locator("tr.body pre").first).to_contain_text('{"hidden":')
        assert "later-" not in page.content()


def test_a_key_logs_in_and_out_by_keyboard(browser: Browser, url, tmp_path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    key = keys.create("ops", "act")
    with shardq.connect(url) as client:
        client.create_queue("orders")
    with serving(url, keys=str(keys.path)) as site, open_page(browser, site.address) as page:
        page.goto("/queues/orders")
        expect(page.get_by_label("Key", exact=True)).to_be_focused()
        page.keyboard.type(key)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{site.address}/queues/orders")
        assert faults_of(page) == []
        assert page.locator("summary", has_text="Purge…").count() == 0
        use(page.get_by_role("button", name="Log out"))
        expect(page.get_by_label("Key", exact=True)).to_be_visible()


class Desk:
    """A person at the keyboard, who sees what the page says of each action."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, path: str, button: str, *, first: str | None = None) -> str:
        """Open a page, and what a button is in, by keyboard; press it, and return the report."""
        self.page.goto(path)
        use(self.page.get_by_text("Skip to the content"))
        if first is not None:
            use(self.page.locator("summary", has_text=first))
        return self.submit(button)

    def submit(self, button: str) -> str:
        with self.page.expect_navigation():  # else the report is that of the action before
            use(self.page.locator("main").get_by_role("button", name=button, exact=True).first)
        report = self.page.get_by_role("alert")
        expect(report).to_be_visible()
        assert "failed" not in str(report.get_attribute("class")), report.inner_text()
        return report.inner_text()


@pytest.fixture
def open_desk(browser: Browser, store: str) -> Iterator[tuple[Desk, shardq.Client]]:
    with (
        open_shop(store),
        serving(store) as site,
        open_page(browser, site.address) as page,
        shardq.connect(store) as client,
    ):
        yield Desk(page), client


def test_every_action_is_done_by_keyboard(open_desk, store) -> None:
    desk, client = open_desk
    page = desk.page
    orders, dead = client.queue("orders"), client.queue("orders.dead")

    assert desk.press("/queues/orders", "Pause deliveries") == "pause: orders"
    assert desk.press("/queues/orders", "Pause sends") == "pause: orders"
    assert orders.settings.delivery_paused and orders.settings.sends_paused
    assert desk.submit("Resume") == "resume: orders"
    assert desk.submit("Sweep").startswith("sweep: ")

    page.goto("/queues/orders")
    use(page.locator("summary", has_text="Change a setting"))
    page.get_by_label("Setting").focus()
    page.keyboard.type("max_deliveries")
    use(page.get_by_label("Value, empty for none"), "7")
    assert desk.submit("Change") == "alter queue: orders"
    assert client.queue("orders").settings.max_deliveries == 7

    page.goto("/queues/orders")
    use(page.locator("summary", has_text="Send a message"))
    use(page.get_by_label("Body", exact=True), '{"tea": 1}')
    use(page.get_by_label("Headers"), "kind: new")
    use(page.get_by_label("Priority"), "9")
    identity = desk.submit("Send").removeprefix("sent ")
    assert orders.get(identity).headers == {"kind": "new"}
    assert (
        desk.press(f"/message/{identity}", "Remove this message", first="Remove…")
        == "remove message: 1 changed"
    )
    assert orders.get(identity) is None

    letters = "/dead-letters/orders.dead"
    assert desk.press(letters, "Redrive") == "redrive: 1 changed"
    assert desk.press(letters, "Remove") == "remove messages: 1 changed"
    page.goto(letters)
    with page.expect_navigation():
        use(page.get_by_role("link", name=re.compile("CardExpired")))
    assert desk.submit("Redrive those that match").startswith("redrive: ")
    assert desk.press(f"{letters}?reason=bank", "Remove them", first="Remove those that match…").startswith(
        "remove messages: "
    )
    left = dead.counts().ready
    assert desk.press(letters, "Redrive all") == f"redrive: {left} changed"

    assert desk.press("/consumers?search=orders", "Evict by force") == "evict: 20 changed"
    if store.startswith("sqlite"):  # a server has its own clock, by which nobody is gone yet
        assert desk.press("/consumers?search=orders", "Evict") == "evict: 5 changed"
    assert desk.press("/schedules", "Pause").startswith("pause schedule: ")
    assert desk.press("/schedules", "Resume").startswith("resume schedule: ")
    assert desk.press("/schedules", "Run now").startswith("sent ")


def test_actions_on_letters_are_for_those_that_the_filter_shows(open_desk) -> None:
    desk, client = open_desk
    other = client.create_queue("returns", dead_letter_queue="orders.dead")
    other.producer().send(b"1")
    with other.consumer() as consumer:
        consumer.receive(1, wait=5).dead_letter("the shop is closed")
    page, orders = desk.page, client.queue("orders.dead").counts().ready - 1
    page.goto("/dead-letters/orders.dead")
    expect(page.get_by_role("button", name="Redrive all")).to_be_visible()
    use(page.get_by_label("From queue"), "returns")
    expect(page.get_by_role("heading", name="1 letter")).to_be_visible()
    assert desk.submit("Redrive those that match") == "redrive: 1 changed"
    assert client.queue("orders.dead").counts().ready == orders
    assert other.counts().ready == 1


def test_what_a_queue_offers_follows_what_others_do_to_it(open_desk) -> None:
    desk, client = open_desk
    desk.page.goto("/queues/orders")
    expect(desk.page.get_by_role("button", name="Resume", exact=True).locator("visible=true")).to_have_count(
        0
    )
    client.queue("orders").pause()
    expect(desk.page.locator("#actions").get_by_role("button", name="Resume")).to_be_visible()
    use(desk.page.locator("summary", has_text="Send a message"))
    use(desk.page.get_by_label("Body", exact=True), "half a sentence")
    client.queue("orders").resume()
    expect(desk.page.locator("#live").get_by_text("deliveries paused")).to_have_count(0)
    expect(desk.page.get_by_label("Body", exact=True)).to_have_value("half a sentence")
