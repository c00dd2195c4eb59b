"""The charts of the history as a person sees them, in Chromium on SQLite."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

import shardq
from shardq.base.clock import SystemClock
from shardq.history import Sampler
from shardq.metrics import Metrics
from shardq.testing import ManualClock, ManualTimer
from tests.browser.chromium import NARROW, WIDE, faults_of, open_page
from tests.browser.site import Site, serving

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    """The dashboard of a store with the history of twenty minutes."""
    url = f"sqlite:///{tmp_path_factory.mktemp('history')}/queue.db?synchronous=normal"
    clock, timer, metrics = ManualClock(SystemClock().now() - 1_200_000_000), ManualTimer(), Metrics()
    with shardq.connect(url, clock=clock, observer=metrics) as client:
        queue = client.create_queue("orders", shards=1, time_shards=1)
        client.create_queue("empty")
        with queue.consumer() as consumer, Sampler(client, measures=metrics.measures, timer=timer) as sampler:
            for number in range(80):
                queue.producer().send_many([b"x"] * (5 + number % 9))
                batch = consumer.receive(7)
                metrics.handled("orders", {"worked": len(batch)}, [0.01 * number] * len(batch))
                batch.ack()
                clock.advance(15)
                timer.advance(15)
                sampler.step()
    with serving(url) as site:
        yield site


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with open_page(browser, site.address) as page:
        yield page


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_charts_are_drawn_and_stay_while_the_page_is_read_again(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto("/queues/orders")
    canvases = page.locator("#history canvas")
    expect(canvases).to_have_count(4)
    canvases.first.evaluate("canvas => { canvas.dataset.mark = 'same' }")
    page.locator("#live > p").evaluate("paragraph => { paragraph.dataset.mark = 'old' }")
    expect(page.locator("#live > p[data-mark]")).to_have_count(0)
    expect(page.locator("#history canvas[data-mark]")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert [fault for fault in faults_of(page) if "#history" in fault or "chart" in fault] == []


def test_another_time_is_chosen_by_a_link_which_the_address_keeps(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#history canvas")).to_have_count(2)
    page.get_by_role("link", name="24 hours").click()
    expect(page.locator("#history .switch a[aria-current]")).to_have_text("24 hours")
    assert page.url.endswith("#24h")


def test_a_queue_without_messages_has_charts_of_what_is_known(page: Page) -> None:
    page.goto("/queues/empty")
    expect(page.locator("#history canvas")).to_have_count(2)
    expect(page.locator("#history figure[hidden]")).to_have_count(2)


def test_the_busiest_queues_have_lines_which_stay_while_the_page_is_read_again(page: Page) -> None:
    page.goto("/")
    line = page.locator("#line-orders polyline")
    expect(line).to_have_attribute("points", re.compile(r"^([\d.]+,[\d.]+ ?){20,}$"))
    page.locator("#live h2").first.evaluate("heading => { heading.dataset.mark = 'old' }")
    expect(page.locator("#live h2[data-mark]")).to_have_count(0)
    expect(line).to_have_attribute("points", re.compile(r"^([\d.]+,[\d.]+ ?){20,}$"))
