"""The site has every page, and its reference every public name."""

from __future__ import annotations

import pkgutil
import re

import pytest

import shardq
from tests.docs.pages import DOCS, ROOT, name

API = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
SHOWN = set(re.findall(r"^::: (.+)$", API, re.MULTILINE))
NAVIGATION = (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name)
def test_a_page_is_in_the_navigation(page) -> None:
    path = page.relative_to(DOCS)
    assert re.search(rf"[ :]{re.escape(str(path))}$", NAVIGATION, re.MULTILINE)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name)
def test_a_page_needs_no_script_from_elsewhere(page) -> None:
    assert "```mermaid" not in page.read_text()  # the theme would fetch what draws it


def test_the_reference_shows_every_public_name() -> None:
    errors = set(shardq.errors.__all__)
    codecs = {name for name in shardq.__all__ if f"`shardq.{name}`" in API}
    missing = {name for name in shardq.__all__ if f"shardq.{name}" not in SHOWN} - errors - codecs
    assert missing == set()


def test_every_package_of_the_reference_is_loaded_when_its_name_is_used_first() -> None:
    named = {path.split(".")[1] for path in SHOWN}
    packages = sorted(each for each in named if (ROOT / "shardq" / each).is_dir())
    assert {"history", "service", "tasks"} <= set(packages)
    load = vars(shardq)["__getattr__"]  # other tests have loaded them
    assert [load(each).__name__ for each in packages] == [f"shardq.{each}" for each in packages]


def test_what_the_reference_shows_exists() -> None:
    assert [path for path in SHOWN if not _found(path)] == []


def _found(path: str) -> bool:
    try:
        pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        return False
    return True
