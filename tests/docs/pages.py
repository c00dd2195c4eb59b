"""The pages of the documentation, and what stands in them."""

from __future__ import annotations

import re
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def name(page: Path) -> str:
    """How a test calls a page."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    """The code blocks of a page in their order: what is said of each, and its text."""
    tokens = MarkdownIt().parse(page.read_text())
    return [(token.info.strip(), token.content) for token in tokens if token.type == "fence"]


def blocks_in(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language; those that are a file of a story are not among them."""
    return [text for info, text in blocks(page) if info == language]


def rows(text: str) -> list[list[str]]:
    """The cells of every row of every table, without their emphasis; header and ruler too."""
    lines = [line.strip().strip("|") for line in text.splitlines() if line.strip().startswith("|")]
    return [[cell.strip().replace("**", "") for cell in re.split(r"(?<!\\)\|", line)] for line in lines]
