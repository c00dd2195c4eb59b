"""The live consumers of a queue, under its name in the tables. Their rows end by themselves after their lifetime."""

from __future__ import annotations

from shardq.storage.cassandra.session import Session

__all__ = ["drop", "enlist", "resign"]

_ENLIST = "INSERT INTO consumer (queue, name, expires_at) VALUES (?, ?, ?) USING TTL ?"
_LIVE = "SELECT name, expires_at FROM consumer WHERE queue = ?"
_RESIGN = "DELETE FROM consumer WHERE queue = ? AND name = ?"
_DROP = "DELETE FROM consumer USING TIMESTAMP ? WHERE queue = ?"
_GRACE = 60


def enlist(session: Session, queue: str, name: str, lifetime: int, now: int) -> tuple[str, ...]:
    """Count the consumer among the live ones and return them all, sorted."""
    session.write([(_ENLIST, (queue, name, now + lifetime, lifetime // 1_000_000 + _GRACE))])
    return tuple(sorted(live for live, expires_at in session.read(_LIVE, (queue,)) if expires_at > now))


def resign(session: Session, queue: str, name: str) -> None:
    """Count the consumer no longer."""
    session.write([(_RESIGN, (queue, name))])


def drop(session: Session, queue: str, written: int) -> None:
    """Forget all consumers of the queue, and those that are written until the moment."""
    session.write([(_DROP, (written, queue))])
