"""Keuss on MongoDB.

The first process creates the capped collection of the signals, which makes each further process fail ("already
exists"). So the processes that join have no signals.
"""

from __future__ import annotations

from typing import Any

from ..mongodb_server import clear, url
from .keuss_queue import KeussQueue


class KeussMongo(KeussQueue):
    name = "Keuss 2.0.6, mongo"
    durability = "majority of one, journal fsync"
    sends = "answered by the server, majority and journal; 32 in flight"
    receives = "findAndModify reserves, delete commits; 32 in flight"
    share = 0.05
    backend = "mongo"

    def options(self) -> dict[str, Any]:
        place, _, options = url().partition("?")
        base = place.rpartition("/")[0]
        return {"url": f"{base}/bench_{self.backend}?{options}&w=majority&journal=true"}

    def clear(self) -> None:
        for suffix in ("", "_stats", "_signal"):
            clear(f"bench_{self.backend}{suffix}")
