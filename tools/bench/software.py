"""What stores the messages, with its version."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import sqlite_version

import shardq

from .database import Running


def software(stores: Mapping[str, Running | None]) -> str:
    """The servers and libraries below shardq's stores, by title."""
    return ", ".join(_named(title, running) for title, running in stores.items())


def _named(title: str, running: Running | None) -> str:
    if running is None:
        return f"SQLite {sqlite_version}"
    try:
        with shardq.connect(running.url) as client:
            releases = [finding.value for finding in client.diagnose() if finding.name == "release"]
    except shardq.ShardqError:  # its measurements say why; without them nothing needs a version
        return title
    return " ".join([title, *releases])
