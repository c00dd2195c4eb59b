"""The ground of guarantees: levels of consistency of the URL, and settings of the nodes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from shardq.errors import InvalidSetting
from shardq.storage.cassandra.connecting import Address
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import Finding

__all__ = [
    "LEVELS",
    "SERIAL_LEVELS",
    "SETTINGS",
    "check_settings",
    "copies",
    "require_overlap",
    "require_overlap_in",
]

LEVELS = ("LOCAL_QUORUM", "QUORUM", "EACH_QUORUM", "ALL")
SERIAL_LEVELS = ("LOCAL_SERIAL", "SERIAL")

_REPLICATION = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?"

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


def require_overlap_in(data_centres: Collection[str], address: Address) -> None:
    """Raise InvalidSetting where clients of these data centres could miss what others of them wrote."""
    if len(data_centres) < 2:
        return
    local = (address.consistency == "LOCAL_QUORUM", address.serial_consistency == "LOCAL_SERIAL")
    if local == (False, False) or (local == (True, True) and address.local_dc):
        return
    raise InvalidSetting(
        f"keyspace {address.keyspace!r} is kept in several data centres ({', '.join(sorted(data_centres))}), and with "
        f"consistency={address.consistency}, serial_consistency={address.serial_consistency}"
        f"{'' if address.local_dc else ' and no local_dc'} clients in one may miss writes of others in another: give "
        "consistency=QUORUM&serial_consistency=SERIAL; or, if all clients use the same one, its name as local_dc with "
        "LOCAL_QUORUM and LOCAL_SERIAL"
    )


def require_overlap(session: Session) -> None:
    """Raise InvalidSetting where the consistency is not enough for the data centres that the keyspace is kept in."""
    require_overlap_in(copies(session).keys(), session.address)


def copies(session: Session) -> dict[str, int]:
    """Return how many copies there are in each data centre; under "" those of a keyspace that knows of none."""
    rows = session.read(_REPLICATION, (session.address.keyspace,))
    options = dict(rows[0][0]) if rows else {}
    options.pop("class", None)
    counts = {
        "" if name == "replication_factor" else name: text.partition("/")[0] for name, text in options.items()
    }
    return {name: int(count) for name, count in counts.items() if count.isdigit() and int(count)}


def check_settings(nodes: Sequence[_Node], grace: Mapping[str, int]) -> Iterator[Finding]:
    """Report on the effect of the nodes' settings on messages; ``grace`` is the gc_grace_seconds of each table."""
    if not any(nodes):
        unchecked = "not checked: this needs GRANT SELECT ON KEYSPACE system_views"
        yield Finding("settings", ok=True, value=unchecked)
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
        remedy=f"messages that were sent or acked within {period} before several nodes lose power may be undone: set "
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
        remedy="set hinted_handoff_enabled: true: a node that was down misses deletions until it is repaired",
    )
    short = sorted(table for table, seconds in grace.items() if seconds < window)
    yield Finding(
        "gc_grace",
        ok=not short,
        value=f"below {window:g} s, the hint window: {', '.join(short)}"
        if short
        else "not below the hint window",
        remedy=f"ALTER TABLE ... WITH gc_grace_seconds = {window:.0f}, or shorten max_hint_window: acked messages can "
        "come back with a node that was down",
    )


def _values(nodes: Sequence[_Node], name: str) -> str:
    return ", ".join(sorted({node.get(name, "?") for node in nodes}))


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    return int(match[1]) * _SECONDS[match[2]] if match else 0.0
