"""Locks of transactions beside those of rows. They are in the memory of the server, so they write nothing.

- Claims share the lock of claims, and take it alone if others were in their way. Then rows that are still locked are
  not locked by a claim, whose cuts SKIP LOCKED would hide.
- A removal of slices holds the locks of their bundles, as the last slice takes the data with it. A change of groups
  holds those of the groups. Beside a few of either, the shard is held together with others; above that, alone.

- A client that waits for signals shares the lock of those who wait. A send shares a second lock until it is committed,
  and learns whether it could have had the first one alone. A client that begins to wait takes the second one alone for
  a moment: then no send is left that has not seen it.

They are taken in this order, each kind sorted, and in a statement before the one that reads the rows that they guard.
A statement sees the commits before its begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from shardq.base.shard import Shard
from shardq.storage.postgresql.connections import Sql

__all__ = [
    "AWAITED",
    "BRIEF",
    "FEW",
    "LONG",
    "claims_number",
    "lock",
    "lock_claims",
    "lock_shard",
    "try_lock",
    "try_lock_shard",
]

FEW = 16
"""The most locks within a shard that a transaction takes. The server has room for some 6,000 of all."""

LONG, BRIEF = "5s", "500ms"
"""For how long a transaction waits for a lock; briefly if other callers wait for its end."""

AWAITED = """
    CASE
        WHEN NOT coalesce(pg_try_advisory_xact_lock_shared({1}), false) THEN true
        WHEN pg_try_advisory_lock({0}) THEN NOT pg_advisory_unlock({0})
        ELSE true
    END
"""
"""Whether a client waits for signals, by the numbers of the two locks; true where they are not known."""

_LOCK = "SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS k"
_SHARE = "SELECT pg_advisory_xact_lock_shared($1)"
_TRY = "SELECT pg_try_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS k"
_TRY_SHARE = "SELECT pg_try_advisory_xact_lock_shared($1)"


def lock_claims(sql: Sql, shard: Shard) -> None:
    """Wait for the end of every other claim in the shard, and let none begin."""
    sql.all(_LOCK, [claims_number(sql, shard)])


def claims_number(sql: Sql, shard: Shard) -> int:
    """Return the number of the lock that the claims of a shard hold."""
    return _number(sql, b"claims", 0, str(shard).encode())


def lock_shard(sql: Sql, shard_key: int) -> None:
    """Hold the shard alone."""
    sql.all(_LOCK, [_number(sql, b"shard", shard_key)])


def lock(sql: Sql, shard_key: int, names: Iterable[bytes]) -> None:
    """Hold these bundles or groups of a shard, or if they are many, all of it."""
    distinct = set(names)
    if len(distinct) > FEW:
        lock_shard(sql, shard_key)
    elif distinct:
        sql.all(_SHARE, _number(sql, b"shard", shard_key))
        sql.all(_LOCK, sorted(_number(sql, b"within", shard_key, name) for name in distinct))


def try_lock_shard(sql: Sql, shard_key: int, *, alone: bool) -> bool:
    """Hold the shard, alone or together with others, if nobody is in the way."""
    number = _number(sql, b"shard", shard_key)
    ((is_held,),) = sql.all(_TRY, [number]) if alone else sql.all(_TRY_SHARE, number)
    return bool(is_held)


def try_lock(sql: Sql, shard_key: int, names: list[bytes]) -> list[bytes]:
    """Hold those of a few groups that nobody else holds; returns them."""
    held = sql.all(_TRY, [_number(sql, b"within", shard_key, name) for name in names])
    return [name for name, (is_held,) in zip(names, held, strict=True) if is_held]


def _number(sql: Sql, kind: bytes, shard_key: int, name: bytes = b"") -> int:
    """Return a number of 64 bits. Two that are alike by chance only wait for each other."""
    digest = blake2b(b"%b:%d:%b" % (kind, shard_key, name), key=sql.salt, digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
