"""Facts about the cluster for ``shardq doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cassandra import Unauthorized

from shardq.errors import InvalidSetting, SchemaMismatch, ShardqError
from shardq.storage.cassandra import schema
from shardq.storage.cassandra.faults import DRIVER_ERRORS
from shardq.storage.cassandra.guarantees import SETTINGS, check_settings, copies, require_overlap_in
from shardq.storage.cassandra.session import Session, clock_leads
from shardq.storage.requests import Finding

__all__ = ["diagnose"]

_LOCAL = "SELECT cluster_name, release_version, data_center FROM system.local"
_PEERS = "SELECT count(*) FROM system.peers_v2"
_SETTINGS = "SELECT name, value FROM system_views.settings"
_GRACE = "SELECT table_name, gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = %s"
_NO_CHANGE = "UPDATE schema_version SET version = 0 WHERE part = 'none' IF EXISTS"
_OLDEST = (4, 1)
_MOST_APART = 1.0  # seconds between the clocks of nodes
_MOST_NODES = 20  # whose settings and clocks are read


def diagnose(session: Session) -> tuple[Finding, ...]:
    """Report on the cluster, settings that weaken a promise, and whether its schema is this client's."""
    try:
        with session.unprepared() as driver:
            local, peers = driver.execute(_LOCAL).one(), driver.execute(_PEERS).one()
            settings = list(_settings(driver, local[2]))
            grace = dict(driver.execute(_GRACE, (session.address.keyspace,)))
    except ShardqError as error:
        return (Finding("reachable", ok=False, value=str(error), remedy="see the error"),)
    grace.pop("schema_version", None)
    return (
        *_cluster(local[0], local[1], local[2], peers[0]),
        *check_settings(settings, grace),
        *_keyspace(session),
        *_rights(session),
        _schema(session),
    )


def _cluster(name: str, release: str, data_center: str, peers: int) -> Iterator[Finding]:
    new_enough = tuple(int(part) for part in release.split(".")[:2]) >= _OLDEST
    yield Finding("reachable", ok=True, value=f"{name}, data centre {data_center}")
    yield Finding("release", ok=new_enough, value=release, remedy="" if new_enough else "use 4.1 or newer")
    yield Finding("nodes", ok=True, value=str(1 + peers))


def _settings(driver: Any, data_center: str) -> Iterator[dict[str, str]]:
    """Read the settings of each node of the data centre, as far as this user may."""
    near = [
        host for host in driver.cluster.metadata.all_hosts() if host.datacenter == data_center and host.is_up
    ]
    for host in near[:_MOST_NODES]:
        try:
            rows = driver.execute(_SETTINGS, host=host)
            yield {name: value for name, value in rows if name in SETTINGS}
        except DRIVER_ERRORS:
            continue


def _keyspace(session: Session) -> Iterator[Finding]:
    """Report on the keyspace, if there is one: how many copies, read how, and by which clocks."""
    try:
        kept, leads = copies(session), clock_leads(session, _MOST_NODES)
    except ShardqError:
        return
    few = bool(kept) and min(kept.values()) < 2
    yield Finding(
        "copies",
        ok=not few,
        value=", ".join(f"{name or 'any data centre'}: {count}" for name, count in sorted(kept.items())),
        remedy="a message is lost with its node: ALTER KEYSPACE to three copies, then `nodetool repair --full`",
    )
    yield _consistency(session, kept)
    apart = (max(leads) - min(leads)) / 1_000_000
    yield Finding(
        "clocks",
        ok=apart <= _MOST_APART,
        value=f"{len(leads)} nodes within {apart:.3f} s",
        remedy="let NTP set the clocks of all nodes",
    )


def _consistency(session: Session, kept: dict[str, int]) -> Finding:
    address = session.address
    levels = f"{address.consistency}, {address.serial_consistency}"
    try:
        require_overlap_in(kept.keys(), address)
    except InvalidSetting as error:
        return Finding("consistency", ok=False, value=levels, remedy=str(error))
    return Finding("consistency", ok=True, value=levels)


def _rights(session: Session) -> Iterator[Finding]:
    """Return whether this user may write, by a conditional change of a row that no keyspace has. It changes nothing."""
    try:
        session.apply([(_NO_CHANGE, ())])
    except ShardqError as error:
        if isinstance(error.__cause__, Unauthorized):
            yield Finding(
                "rights", ok=False, value="without MODIFY", remedy="give this user MODIFY on the keyspace"
            )
        return  # the check of the schema meets what else there is
    yield Finding("rights", ok=True, value="all that are needed")


def _schema(session: Session) -> Finding:
    try:
        schema.require_current(session)
    except SchemaMismatch as error:
        return Finding("schema", ok=False, value=str(error), remedy="run `shardq create`")
    except ShardqError as error:
        return Finding("schema", ok=False, value=str(error), remedy="see the error")
    return Finding("schema", ok=True, value=f"version {schema.version(session)}")
