"""What stores the messages, with its version."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import sqlite_version

import shardq


def software(stores: Mapping[str, str | None]) -> str:
    """The servers and libraries below shardq's stores, by title and URL."""
    return ", ".join(_named(title, url) for title, url in stores.items())


def _named(title: str, url: str | None) -> str:
    if url is None:
        return f"SQLite {sqlite_version}"
    try:
        with shardq.connect(url) as client:
            found = {finding.name: finding.value for finding in client.diagnose()}
    except shardq.ShardqError:  # its measurements say why; without them nothing needs a version
        return title
    return f"{title} {found.get('release', found.get('server', '')).removeprefix(title).strip()}".strip()
