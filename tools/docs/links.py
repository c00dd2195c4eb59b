"""Checks every link of the built site: the file is there, and so is the place in it. Links to elsewhere are let be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

__all__ = ["broken_links"]


class Link(NamedTuple):
    """Where a link stands, and where it leads."""

    page: Path
    target: str


class Page(HTMLParser):
    """The links of a page, and the places in it that links can lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[Link] = []
        self.places = {"", "__top"}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        values = dict(attrs)
        self.places |= {place for name in ("id", "name") if (place := values.get(name))}
        for name in ("href", "src"):
            if target := values.get(name):
                self.links.append(Link(self.path, target))


def broken_links(site: Path) -> Iterator[Link]:
    """Every link of the site that leads nowhere."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    for page in pages.values():
        yield from (link for link in page.links if not _leads_somewhere(link, pages))


def _leads_somewhere(link: Link, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link.target)
    if parts.scheme or parts.netloc:
        return True
    path = (link.page.parent / unquote(parts.path)).resolve() if parts.path else link.page.resolve()
    if path.is_dir():
        path /= "index.html"
    if path in pages and parts.fragment:
        return unquote(parts.fragment) in pages[path].places
    return path.exists()


def main(site: Path) -> int:
    """Say what is broken; 1 when something is."""
    broken = sorted(set(broken_links(site)))
    for link in broken:
        print(f"{link.page.relative_to(site)}: {link.target} leads nowhere", file=sys.stderr)
    pages = sum(1 for _ in site.rglob("*.html"))
    print(f"{pages} pages, {len(broken)} broken links")
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
