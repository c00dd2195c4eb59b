"""Forms of the pages, as a browser sends them."""

from __future__ import annotations

import re
from typing import Any

from starlette.testclient import TestClient


def token_of(page: str) -> str:
    return re.findall(r'name="csrf" value="([0-9a-f]+)"', page)[0]


def do(ui: TestClient, page: str, action: str, **fields: object) -> Any:
    """Send a form of a page, and return the page that it leads to."""
    token = token_of(ui.get(page).text)
    return ui.post(f"/do/{action}", data={"csrf": token, "back": page, **fields})
