"""Shows the docstrings of shardq as Markdown: they are written in reStructuredText, as `help()` shows them best.

What they use of it is roles (:class:`~shardq.Queue`), examples after `>>>`, terms with their meaning on the line below,
and literal blocks after two colons.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from griffe import Docstring, Extension, Object

ROLE = re.compile(r":(?:class|func|meth|mod|attr|exc):`(?P<short>~?)(?P<path>[\w.]+)`")
TERM = re.compile(r"^(?P<names>``\w+``(?:, ``\w+``)*)$")

PAGES = Path(__file__).parents[2] / "docs" / "api"
SHOWN = set(
    re.findall(r"^::: (.+)$", "\n".join(page.read_text() for page in PAGES.glob("*.md")), re.MULTILINE)
)


def markdown(text: str) -> str:
    """The text of a docstring as Markdown."""
    return "\n\n".join(filter(None, map(_paragraph, re.split(r"\n\s*\n", text))))


def _paragraph(text: str) -> str:
    if text == "::":
        return ""
    if text.startswith(">>> "):
        return f"```pycon\n{text}\n```"
    return ROLE.sub(_link, "\n".join(map(_item, text.splitlines())))


def _item(line: str) -> str:
    """A term begins an item of a list, and what it means stands below it already."""
    term = TERM.match(line)
    return f"- {term['names']}:" if term else line


def _link(role: re.Match[str]) -> str:
    path = role["path"]
    name = path.rpartition(".")[2] if role["short"] else path
    is_shown = path in SHOWN or path.rpartition(".")[0] in SHOWN
    return f"[`{name}`][{path}]" if is_shown else f"`{name}`"


class ShardqDocstrings(Extension):  # type: ignore[misc,unused-ignore]  # griffe comes with the site
    """Called for each object that is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Replace its docstring."""
        if isinstance(obj.docstring, Docstring):
            obj.docstring.value = markdown(obj.docstring.value)
