"""How far the clocks of the cluster's nodes are ahead."""

from __future__ import annotations

from typing import Any

from shardq.errors import ShardqError
from shardq.storage.cassandra.session import Session
from shardq.storage.elapsed import uptime

__all__ = ["leads"]

_NOW = "SELECT now() FROM system.local"
_UUID_EPOCH = 0x01B21DD213814000  # of version 1 UUIDs, in tenths of a microsecond before 1970
_SAMPLES = 4
_NODES = 3
_PATIENCE = 1.0  # seconds; a node that has no answer by then is left out


def leads(session: Session, nodes: int = _NODES) -> tuple[int, ...]:
    """Ask up to three nodes, or ``nodes``, by how many microseconds their clocks are ahead of this machine's uptime.

    The fastest of four answers of each counts. All clients ask the same nodes, as long as they see the same ones up.
    """
    found = [lead for node in session.nodes()[:nodes] if (lead := _lead(session, node)) is not None]
    return tuple(found) or (min(_sample(session) for _ in range(_SAMPLES))[1],)


def _lead(session: Session, node: Any) -> int | None:
    try:
        return min(_sample(session, node=node, patience=_PATIENCE) for _ in range(_SAMPLES))[1]
    except ShardqError:
        return None


def _sample(session: Session, **where: Any) -> tuple[int, int]:
    before = uptime()
    ((answer,),) = session.read(_NOW, (), **where)
    after = uptime()
    return after - before, (answer.time - _UUID_EPOCH) // 10 - (before + after) // 2
