"""Settings of the nodes that a promise rests on. They are read from ``system_views.settings``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from shardq.storage.requests import Finding

__all__ = ["SETTINGS", "check_settings"]

SETTINGS = frozenset(
    {
        "commitlog_sync",
        "commitlog_sync_period",
        "hinted_handoff_enabled",
        "max_hint_window",
        "paxos_variant",
        "tombstone_failure_threshold",
    }
)
_TOMBSTONES = 100_000  # the default, with which shardq is tested
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_Node = Mapping[str, str]


def check_settings(nodes: Sequence[_Node], grace: Mapping[str, int]) -> Iterator[Finding]:
    """What the nodes' settings mean for messages; ``grace`` is the gc_grace_seconds of each table."""
    if not any(nodes):
        told = "not checked: this needs GRANT SELECT ON KEYSPACE system_views"
        yield Finding("settings", ok=True, value=told)
        return
    yield _commit_log(nodes)
    yield _paxos(nodes)
    yield _tombstones(nodes)
    yield from _hints(nodes, grace)


def _commit_log(nodes: Sequence[_Node]) -> Finding:
    lazy = [node for node in nodes if node.get("commitlog_sync") == "periodic"]
    period = max((node.get("commitlog_sync_period", "10000ms") for node in lazy), key=_seconds, default="")
    return Finding(
        "commit log",
        ok=not lazy,
        value=f"periodic, every {period}" if lazy else _values(nodes, "commitlog_sync"),
        remedy=f"what was sent or acked within {period} before several nodes lose power may be undone: set "
        "commitlog_sync: group, or batch, in cassandra.yaml",
    )


def _paxos(nodes: Sequence[_Node]) -> Finding:
    variants = _values(nodes, "paxos_variant")
    return Finding(
        "paxos variant",
        ok="," not in variants,
        value=variants,
        remedy="set the same paxos_variant on all nodes; v2 takes fewer round trips",
    )


def _tombstones(nodes: Sequence[_Node]) -> Finding:
    thresholds = [int(node.get("tombstone_failure_threshold", _TOMBSTONES)) for node in nodes]
    return Finding(
        "tombstones",
        ok=min(thresholds) >= _TOMBSTONES,
        value=f"a read fails at {min(thresholds)}",
        remedy=f"set tombstone_failure_threshold in cassandra.yaml to {_TOMBSTONES} or more: a busy shard has many",
    )


def _hints(nodes: Sequence[_Node], grace: Mapping[str, int]) -> Iterator[Finding]:
    off = [node for node in nodes if node.get("hinted_handoff_enabled") == "false"]
    window = max(_seconds(node.get("max_hint_window", "3h")) for node in nodes)
    yield Finding(
        "hints",
        ok=not off,
        value="off" if off else f"kept for {window / 3600:g} h",
        remedy="set hinted_handoff_enabled: true: a node that was away misses what was deleted until it is repaired",
    )
    short = sorted(table for table, seconds in grace.items() if seconds < window)
    yield Finding(
        "gc_grace",
        ok=not short,
        value=f"below {window:g} s, the hint window: {', '.join(short)}"
        if short
        else "not below the hint window",
        remedy=f"ALTER TABLE ... WITH gc_grace_seconds = {window:.0f}, or shorten max_hint_window: what was acked can "
        "come back with a node that was away",
    )


def _values(nodes: Sequence[_Node], name: str) -> str:
    return ", ".join(sorted({node.get(name, "?") for node in nodes}))


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    return int(match[1]) * _SECONDS[match[2]] if match else 0.0
