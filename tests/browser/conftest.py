"""Fixtures of the tests of the dashboard in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import VARIABLE, chromium, find_chromium
from tests.local_server import do_without
from tests.quick_store import url

__all__ = ["browser", "url"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which runs until the tests of a file have ended."""
    program = find_chromium()
    if program is None:
        do_without(f"there is no Chromium: install Debian's package chromium, or name it in {VARIABLE}")
    with chromium(program) as browser:
        yield browser
