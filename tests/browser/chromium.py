"""Chromium, and what a person and axe see of a page in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

__all__ = [
    "HEIGHT",
    "NARROW",
    "WIDE",
    "chromium",
    "faults_of",
    "find_chromium",
    "open_page",
    "overflow",
    "press_to",
    "use",
]

VARIABLE = "SHARDQ_TEST_CHROMIUM"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WIDE, NARROW = 1280, 375
HEIGHT = 800
SERIOUS = {"serious", "critical"}
AXE = {
    "resultTypes": ["violations"],
    "rules": {"target-size": {"enabled": True}},
    "preload": False,
    "iframes": False,
}
MOST_STOPS = 150
_axe = Axe()
expect.set_options(timeout=60_000)  # the machine may be busy


def find_chromium() -> str | None:
    """Return the path of Chromium on this machine, or of what the variable names."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def chromium(program: str) -> Iterator[Browser]:
    """Run a headless Chromium. Within the block the thread has a running event loop, so it cannot run another."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(
    browser: Browser, address: str, *, width: int = WIDE, still: bool = False, **options: Any
) -> Iterator[Page]:
    """Open a window of its own. What its console complains of fails the test at the end of the block.

    With ``still`` the updates of its pages are paused, so that nothing changes while they are looked at.
    """
    complaints: list[str] = []
    window = browser.new_context(base_url=address, viewport={"width": width, "height": HEIGHT}, **options)
    with window:
        page = window.new_page()
        if still:
            page.add_init_script("sessionStorage.setItem('shardq-paused', 'true')")
        page.set_default_timeout(60_000)
        page.on("console", lambda said: complaints.append(said.text) if _is_fault(said) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("response", lambda answer: complaints.append(answer.url) if answer.status >= 500 else None)
        yield page
    assert complaints == [], complaints


def _is_fault(said: ConsoleMessage) -> bool:
    """Return whether a page complains; also of a refused request, but not of what somebody else has deleted."""
    return said.type in ("error", "warning") and not said.text.endswith("404 (Not Found)")


def faults_of(page: Page) -> list[str]:
    """Return what is wrong with a page as it is: parts beyond its width, and serious findings of axe."""
    found = [
        f"{each['id']}: {' '.join(map(str, node['target']))}: {node['html'][:200]}"
        for each in _axe.run(page, options=AXE).response["violations"]
        if each["impact"] in SERIOUS
        for node in each["nodes"][:3]
    ]
    return [f"{beyond} px are beyond the right edge", *found] if (beyond := overflow(page)) else found


def overflow(page: Page) -> int:
    """Return how much wider than its window a page is, in pixels."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def press_to(target: Locator, key: str = "Tab") -> None:
    """Move the focus to an element by a key alone. The focus has to be seen."""
    keyboard = target.page.keyboard
    # Asked for in one step: between two, a page that reads itself again may replace the element, which is passed then.
    focused = target.and_(target.page.locator(":focus"))
    target.wait_for(state="attached")
    for _ in range(MOST_STOPS):
        if focused.count():
            outline = target.evaluate("element => getComputedStyle(element).outlineStyle")
            assert outline != "none", f"{target} does not show that it has the focus"
            return
        keyboard.press(key)
    raise AssertionError(f"{target} is not reached by {key}")


def use(target: Locator, text: str | None = None) -> None:
    """Reach an element by the keyboard, and type a text into it or press Enter."""
    press_to(target)
    if text is None:
        target.page.keyboard.press("Enter")
    else:
        target.page.keyboard.press("Control+A")
        target.page.keyboard.type(text)
