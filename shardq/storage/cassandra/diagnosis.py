"""Facts about the cluster for ``shardq doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from shardq.errors import SchemaMismatch, ShardqError
from shardq.storage.cassandra import schema
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import Finding

__all__ = ["diagnose"]

_LOCAL = "SELECT cluster_name, release_version, data_center FROM system.local"
_PEERS = "SELECT count(*) FROM system.peers_v2"
_OLDEST = (4, 1)


def diagnose(session: Session) -> tuple[Finding, ...]:
    """What the cluster is and whether its schema is this client's; changes nothing."""
    try:
        with session.unprepared() as driver:
            local, peers = driver.execute(_LOCAL).one(), driver.execute(_PEERS).one()
    except ShardqError as error:
        return (Finding("reachable", ok=False, value=str(error), remedy="see the error"),)
    return (*_cluster(local[0], local[1], local[2], peers[0]), _schema(session))


def _cluster(name: str, release: str, data_center: str, peers: int) -> Iterator[Finding]:
    new_enough = tuple(int(part) for part in release.split(".")[:2]) >= _OLDEST
    yield Finding("reachable", ok=True, value=f"{name}, data centre {data_center}")
    yield Finding("release", ok=new_enough, value=release, remedy="" if new_enough else "use 4.1 or newer")
    yield Finding("nodes", ok=True, value=str(1 + peers))


def _schema(session: Session) -> Finding:
    try:
        schema.require_current(session)
    except SchemaMismatch as error:
        return Finding("schema", ok=False, value=str(error), remedy="run `shardq create`")
    except ShardqError as error:
        return Finding("schema", ok=False, value=str(error), remedy="see the error")
    return Finding("schema", ok=True, value=f"version {schema.version(session)}")
