"""The built site in a browser: each page fits a phone, shows all that it should, and is found by its words."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import HEIGHT, NARROW, WIDE
from tests.browser.conftest import browser
from tests.docs.pages import DOCS, ROOT, name
from tools.docs.links import broken_links

__all__ = ["browser"]

pytest.importorskip("mkdocs", reason="the site is built by the tools of `make site`")

LEFT = "net::ERR_ABORTED"  # a request that was under way when the test left the page

FAULTS = """() => {
  for (const motion of document.getAnimations()) motion.finish();
  const found = [], width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) found.push("the page is wider than the window");
  const scrolls = element => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const isCut = element => {
    for (let box = element.parentElement; box; box = box.parentElement) if (scrolls(box)) return false;
    return element.getBoundingClientRect().right > width + 1;
  };
  for (const element of document.querySelectorAll(".md-content *, .md-footer *"))
    if (isCut(element)) found.push(`cut off: ${element.outerHTML.slice(0, 80)}`);
  for (const code of document.querySelectorAll("p code, li code, td code, th code"))
    if (/^[\\w.*=<>|-]{1,32}$/.test(code.textContent) && code.getClientRects().length > 1)
      found.push(`broken: ${code.textContent}`);
  for (const image of document.images)
    if (!image.complete || !image.naturalWidth) found.push(`no image: ${image.src}`);
  return found;
}"""
"""What is wrong with a page in a window of this width. A box that scrolls may have more than it shows."""

NO_INDEX = {"config": {"lang": ["en"], "separator": " ", "pipeline": [], "fields": {}}, "docs": []}
"""An index of no page: the engine takes a second to read that of the site."""

SEARCH = """async ([worker, index, queries]) => {
  const ask = message => new Promise(answer => {
    engine.onmessage = event => answer(event.data.data);
    engine.postMessage(message);
  });
  const engine = new Worker(worker), best = {};
  await ask({type: 0, data: {...await (await fetch(index)).json(), options: {suggest: false}}});
  for (const query of queries) best[query] = (await ask({type: 2, data: query})).items[0]?.[0].location;
  return best;
}"""
"""The first result of each query, by the search engine of the theme."""

WANTED = {
    "retry": "guide/workers.html#retry-snooze-discard-or-dead-letter",
    "cron": "schedules.html",
    "FastAPI": "asyncio.html#fastapi",
    "existing database": "faq.html#can-i-use-my-existing-database",
    "dead letter": "guide/dead-letters-and-history.html",
    "DLQ": "guide/dead-letters-and-history.html#dead-letters-and-redrive",
    "dedupe": "guide/ordering-and-keys.html#dedupe-keys-and-unique-keys",
    "exactly once": "faq.html#is-a-message-delivered-exactly-once",
    "priority": "guide/sending.html#delay-priority-and-other-options",
    "TTL": "guide/sending.html#messages-with-a-ttl-expire",
    "backup": "backups.html",
    "Prometheus": "metrics.html",
    "Kubernetes": "operations.html#kubernetes",
    "PostgreSQL": "guide/postgresql.html",
    "rate limit": "guide/limits.html",
    "timeout": "tasks.html#what-can-a-timeout-interrupt",
    "visibility timeout": "faq.html#my-work-takes-longer-than-the-visibility-timeout-what-can-i-do",
    "poison": "guide/workers.html#poison-messages",
    "install": "tutorial.html#install",
    "shardq.connect": "api/queues.html#shardq.connect",
}
"""The result that a reader wants first, by the words that they type."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make site` builds it."""
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(built)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    handler = functools.partial(_Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Page:
    """A tab that all pages are opened in, one after the other."""
    return browser.new_page()


@pytest.fixture
def window(tab: Page) -> Iterator[Page]:
    """The tab, as wide as a phone. The console of the page has no errors, and each of its requests succeeds."""
    complaints: list[str] = []
    listeners: dict[Any, Callable[[Any], None]] = {
        "console": lambda said: complaints.append(said.text) if said.type == "error" else None,
        "pageerror": lambda error: complaints.append(str(error)),
        "requestfailed": lambda request: complaints.append(request.url) if request.failure != LEFT else None,
        "response": lambda answer: complaints.append(answer.url) if answer.status >= 400 else None,
    }
    for event, listener in listeners.items():
        tab.on(event, listener)
    tab.set_viewport_size({"width": NARROW, "height": HEIGHT})
    yield tab
    tab.goto("about:blank")
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert complaints == []


def built_path(page: Path) -> str:
    """Return the path of a page within the site."""
    return str(page.relative_to(DOCS).with_suffix(".html")).replace("README", "index")


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name)
def test_a_page_fits_a_phone_and_a_desk_and_loads_its_images(page: Path, window: Page, address: str) -> None:
    window.route("**/search_index.json", lambda asked: asked.fulfill(json=NO_INDEX))  # the next test has it
    window.goto(f"{address}/{built_path(page)}")
    assert window.evaluate(FAULTS) == []
    window.set_viewport_size({"width": WIDE, "height": HEIGHT})
    assert window.evaluate(FAULTS) == []


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert sorted(broken_links(site)) == []


def test_the_search_finds_the_page_that_a_reader_wants(window: Page, address: str) -> None:
    window.unroute_all()
    window.goto(f"{address}/index.html")
    settings = json.loads(window.locator("#__config").inner_text())
    worker, index = f"{address}/{settings['search']}", f"{address}/search/search_index.json"
    assert window.evaluate(SEARCH, [worker, index, list(WANTED)]) == WANTED
