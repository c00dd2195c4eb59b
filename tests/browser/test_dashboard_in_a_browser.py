"""The dashboard as a person sees it and uses it, in Chromium on SQLite."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

import shardq
from shardq.service.page_contents import PAGES
from tests.browser.chromium import NARROW, faults_of, open_page, overflow, press_to, use
from tests.browser.shop import Shop, open_shop
from tests.browser.site import Site, serving

AUDITED = {"overview", "queue", "dead_letters", "schedules"}
"""What axe looks at here; the long tests have it look at every page."""

pytestmark = pytest.mark.xdist_group("browser")  # one of them for all tests


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Iterator[tuple[Shop, Site]]:
    """A shop that tests only look at."""
    url = f"sqlite:///{tmp_path_factory.mktemp('shop')}/queue.db?synchronous=normal"
    with open_shop(url) as shop, serving(url, tick=None) as site:
        yield shop, site


@pytest.fixture
def site(url: str) -> Iterator[Site]:
    """The dashboard of a fresh store."""
    with serving(url) as site:
        yield site


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with open_page(browser, site.address) as page:
        yield page


def test_every_page_fits_a_telephone_and_axe_finds_nothing_serious(browser, shop) -> None:
    data, site = shop
    faults = {}
    with open_page(browser, site.address, width=NARROW, still=True) as page:
        for each in PAGES:
            page.goto(data.path(each.path))
            expect(page.locator("main h1")).to_be_visible()
            found = faults_of(page) if each.template in AUDITED else overflow(page)
            if found:
                faults[each.path] = found
    assert faults == {}


def test_a_queue_is_made_filled_purged_and_deleted_by_keyboard_alone(page: Page, url) -> None:
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page).to_have_title(re.compile("^Queues"))
    use(page.locator("summary", has_text="Create a queue"))
    use(page.get_by_label("Name"), "orders")
    use(page.get_by_role("button", name="Create", exact=True))
    expect(page.get_by_role("alert")).to_have_text("create queue: orders")
    use(page.get_by_role("link", name="orders", exact=True))
    use(page.locator("summary", has_text="Send a message"))
    use(page.get_by_label("Body", exact=True), "tea for two")
    use(page.get_by_role("button", name="Send", exact=True))
    expect(page.get_by_role("alert")).to_contain_text("sent orders:")
    with shardq.connect(url) as client:
        queue = client.queue("orders")
        assert [each.body for each in queue.peek(5)] == [b"tea for two"]
        use(page.locator("summary", has_text="Purge…"))
        use(page.get_by_label("Type orders to confirm").locator("visible=true"), "order")
        use(page.get_by_role("button", name="Purge", exact=True))
        assert (
            not page.get_by_label("Type orders to confirm")
            .locator("visible=true")
            .evaluate("field => field.checkValidity()")
        )
        assert queue.counts().ready == 1
        use(page.get_by_label("Type orders to confirm").locator("visible=true"), "orders")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("purge: 1 changed")
        assert queue.counts().ready == 0
        use(page.locator("summary", has_text="Delete…"))
        use(page.get_by_label("Type orders to confirm").locator("visible=true"), "orders")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("delete queue: 1 changed")
        assert client.queues() == ("orders.dead",)


def test_a_page_follows_the_store_but_not_while_it_is_paused_or_hidden(
    browser, page: Page, site, url
) -> None:
    with shardq.connect(url) as client, open_page(browser, site.address) as other:
        producer = client.create_queue("orders").producer()
        ready = "a.tile:has-text('ready') b"
        for each in (page, other):
            each.goto("/queues/orders")
            expect(each.locator("#status")).to_have_text("live")
        producer.send(b"1")
        expect(page.locator(ready)).to_have_text("1")
        page.keyboard.press("p")
        expect(page.locator("#status")).to_have_text("paused")
        producer.send(b"2")
        expect(other.locator(ready)).to_have_text("2")  # a tick came to all that listen
        assert page.locator(ready).inner_text() == "1"
        page.keyboard.press("p")
        expect(page.locator(ready)).to_have_text("2")
        _hide(page, hidden=True)
        producer.send(b"3")
        expect(other.locator(ready)).to_have_text("3")
        assert page.locator(ready).inner_text() == "2"
        _hide(page, hidden=False)
        expect(page.locator(ready)).to_have_text("3")
        expect(page.locator("#status")).to_have_text("live")


def _hide(page: Page, *, hidden: bool) -> None:
    """Let a page believe that its tab is hidden, or shown again."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_the_focus_stays_where_it_is_while_a_page_follows_the_store(page: Page, url) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue("orders")
        page.goto("/queues/orders")
        ready = page.locator("a.tile:has-text('ready')")
        press_to(ready)
        queue.producer().send(b"1")
        expect(ready.locator("b")).to_have_text("1")
        expect(ready).to_be_focused()


def test_the_address_holds_what_is_shown_and_going_back_brings_it_back(page: Page, url) -> None:
    with shardq.connect(url) as client:
        for name in ("mail", "orders", "old/orders"):
            client.create_queue(name)
    page.goto("/queues")
    page.keyboard.press("/")
    page.keyboard.type("orders")
    expect(page).to_have_url(re.compile(r"/queues\?search=orders$"))
    rows = page.locator("#live tbody tr")
    expect(rows).to_have_count(4)
    page.reload()
    expect(rows).to_have_count(4)
    expect(page.locator("#search")).to_have_value("orders")
    use(page.locator("#search"), "old")
    expect(rows).to_have_count(2)
    page.go_back()
    expect(rows).to_have_count(4)
    expect(page.locator("#search")).to_have_value("orders")
    expect(page.locator("#status")).to_have_text("live")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#status")).to_have_text("paused")


def test_a_chosen_theme_is_kept_and_that_of_the_system_is_the_first(browser, shop) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with open_page(browser, shop[1].address, color_scheme="dark") as page:
        page.goto("/")
        dark = page.evaluate(background)
        use(page.get_by_role("button", name="Theme"))
        light = page.evaluate(background)
        page.goto("/limits")
        assert page.evaluate(background) == light != dark


def test_times_are_relative_with_the_absolute_one_on_hover_and_numbers_are_exact(browser, shop) -> None:
    with open_page(browser, shop[1].address) as page:
        page.goto("/queues/mail")
        expect(page.locator("a.tile:has-text('ready') b")).to_have_text("12,345")
        time = page.locator("main time").first
        assert re.fullmatch(r"[\d.]+ (ms|s|min)( \d+ s)? ago", time.inner_text())
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ UTC", str(time.get_attribute("title")))


def test_the_keys_are_listed_and_the_list_is_closed_by_a_key(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert faults_of(page) == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
