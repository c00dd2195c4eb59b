"""Ranks how-to guides above the reference and the explanations in the search of the site."""

from __future__ import annotations

from mkdocs.structure.pages import Page

WEIGHTS = {"Design notes": 0.05, "API": 0.2, "Reference": 0.5, "Explanation": 0.3}
"""The weight of the pages of a section; 1 elsewhere. The innermost section counts."""


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Give a page the weight of its section, unless its own metadata has one."""
    sections = [section.title for section in page.ancestors]
    weight = next((WEIGHTS[title] for title in sections if title in WEIGHTS), 1)
    page.meta.setdefault("search", {"boost": weight})
    return html
