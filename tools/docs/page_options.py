"""Prepares the pages of the site: their rank in the search, the menus beside them, and names that must not break."""

from __future__ import annotations

import re

from mkdocs.structure.pages import Page

WEIGHTS = {"Design notes": 0.05, "API": 0.2, "Reference": 0.5, "Explanation": 0.3}
"""The weight of the pages of a section in the search; 1 elsewhere. The innermost section counts."""

NAME = re.compile(r"<code>(?=[^<>\s/]{1,32}</code>)")
"""The name of a setting, an option or an error: it fits a line of a phone. Paths and calls may break."""


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Give a page the weight of its section, and its names a class. The home page has no menus beside it."""
    sections = [section.title for section in page.ancestors]
    weight = next((WEIGHTS[title] for title in sections if title in WEIGHTS), 1)
    page.meta.setdefault("search", {"boost": weight})
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    elif not sections:
        page.meta["hide"] = ["navigation"]
    return NAME.sub('<code class="name">', html)
