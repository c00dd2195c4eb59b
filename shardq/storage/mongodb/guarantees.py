"""The parts of a URL and of a server that weaken a guarantee: they are refused, or reported by the diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardq.errors import InvalidSetting
from shardq.storage.mongodb.documents import Document
from shardq.storage.requests import Finding

__all__ = ["check_write_concern", "findings"]


def check_write_concern(concern: Mapping[str, Any], where: str = "in the MongoDB URL") -> None:
    """Raise InvalidSetting for writes that fewer than two members confirm, or from memory."""
    acknowledged, journal = concern.get("w", "majority"), concern.get("j", True)
    if isinstance(acknowledged, int) and acknowledged < 2:
        raise InvalidSetting(
            f"w={acknowledged} {where} lets confirmed writes be lost with one server: "
            "leave w out, so that a majority confirms each write"
        )
    if not journal:
        raise InvalidSetting(
            f"journal=false {where} lets confirmed writes be lost when servers lose power: "
            "leave journal out, so that each write is confirmed from the journal"
        )


def findings(concern: Document, hello: Document, reads: str, status: dict[str, Any]) -> Iterator[Finding]:
    """Report who confirms a write, who answers a read, the limits of the server and where it keeps its data.

    ``reads`` is the read preference of the URL, ``status`` the server's report on itself; empty when this user may not
    ask.
    """
    majority = (len(hello.get("hosts", ())) or 1) // 2 + 1
    confirmed = concern["w"]
    yield Finding(
        "write concern",
        ok=confirmed == "majority" or (isinstance(confirmed, int) and confirmed >= majority),
        value=str(concern),
        remedy="leave w out of the URL, so that a majority confirms each write",
    )
    yield Finding(
        "read preference",
        ok=reads == "primary",
        value=reads,
        remedy="leave readPreference out of the URL: everything is read from the primary anyway",
    )
    yield _transactions(hello)
    engine = status.get("storageEngine")
    if engine is not None:
        yield Finding(
            "storage",
            ok=engine.get("persistent", True),
            value=engine.get("name", "not known"),
            remedy="let the server keep its data on disk: storage.engine wiredTiger",
        )


def _transactions(hello: Document) -> Finding:
    if "setName" in hello or hello.get("msg") == "isdbgrid":
        return Finding("transactions", ok=True, value="yes")
    without = "none, as the server stands alone: a move to another queue is a send and then an ack"
    return Finding("transactions", ok=True, value=without)
