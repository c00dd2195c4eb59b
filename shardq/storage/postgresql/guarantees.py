"""The settings of a server that weaken a guarantee, or make it slow in the long run, as the diagnosis reports them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardq.storage.requests import Finding

__all__ = ["durability", "findings"]

_WAITS = frozenset(("on", "local", "remote_write", "remote_apply"))


def findings(settings: Mapping[str, str]) -> Iterator[Finding]:
    """Say what a commit waits for, and whether dead rows are removed."""
    yield durability(settings)
    if settings["client_min_messages"] == "error":
        value = "error: a commit that stops waiting for a standby is reported as done"
        yield Finding("client_min_messages", True, value, "set client_min_messages = warning", warning=True)
    yield Finding(
        "fsync",
        ok=settings["fsync"] == "on",
        value=settings["fsync"],
        remedy="set fsync = on: without it a power failure may lose or damage everything",
    )
    yield Finding(
        "full_page_writes",
        ok=settings["full_page_writes"] == "on",
        value=settings["full_page_writes"],
        remedy="set full_page_writes = on, unless the file system writes whole pages",
    )
    yield Finding(
        "autovacuum",
        ok=settings["autovacuum"] == "on",
        value=settings["autovacuum"],
        remedy="set autovacuum = on: what was consumed is removed by it",
    )


def durability(settings: Mapping[str, str]) -> Finding:
    """Say what a commit waits for."""
    level, standbys = settings["synchronous_commit"], settings["synchronous_standby_names"]
    if level not in _WAITS:
        value = f"{level}: a failure of the server may undo the last sends and acks"
        return Finding(
            "synchronous_commit", False, value, "set synchronous_commit = on for this user or database"
        )
    if standbys and level in ("local", "remote_write"):
        value = f"{level}: a failover to a standby may undo the last sends and acks"
        return Finding("synchronous_commit", True, value, "set synchronous_commit = on", warning=True)
    return Finding("synchronous_commit", True, level)
