"""The keyspace and its tables: which version they have, and how they are made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cassandra import AlreadyExists, InvalidRequest

from shardq.errors import SchemaMismatch
from shardq.storage.cassandra.address import Address
from shardq.storage.cassandra.session import Session
from shardq.storage.migrations import migrations

__all__ = ["apply", "require_current", "version"]

_STORE = "cassandra"
_VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (part text PRIMARY KEY, version int)"
_VERSION = "SELECT version FROM schema_version WHERE part = 'shardq'"
_SET_VERSION = "UPDATE schema_version SET version = %s WHERE part = 'shardq' IF version = %s"
_RELEASE = "SELECT release_version, data_center FROM system.local"
_NEW_COMPACTION = "UnifiedCompactionStrategy"  # from 5.0 on
_OLD_COMPACTION = "LeveledCompactionStrategy"


def version(session: Session) -> int:
    """Return the number of the last migration that was applied; 0 when none was."""
    rows = session.read(_VERSION, ())
    return int(rows[0][0]) if rows else 0


def require_current(session: Session) -> None:
    """Raise SchemaMismatch unless the keyspace has this client's schema."""
    _check(session.address, version(session))


def apply(session: Session) -> None:
    """Make keyspace and tables as far as they are missing; raises SchemaMismatch when they are newer."""
    with session.unprepared() as driver:
        release, data_center = driver.execute(_RELEASE).one()
        _make_keyspace(driver, session.address, data_center)
        _execute(driver, _VERSION_TABLE)
        for migration in migrations(_STORE):
            found = driver.execute(_VERSION).one()
            done = int(found[0]) if found else 0
            if done > len(migrations(_STORE)):
                _check(session.address, done)
            if done < migration.number:
                for statement in _statements(migration.text, release):
                    _execute(driver, statement)
                driver.execute(_SET_VERSION, (migration.number, done or None))


def _make_keyspace(driver: Any, address: Address, data_center: str) -> None:
    """Make the keyspace unless it is there. Its name and those of data centres were checked with the URL."""
    try:
        driver.set_keyspace(address.keyspace)
    except InvalidRequest:
        copies = ", ".join(f"'{name}': {count}" for name, count in address.replication or ((data_center, 1),))
        _execute(
            driver,
            f'CREATE KEYSPACE IF NOT EXISTS "{address.keyspace}" '
            f"WITH replication = {{'class': 'NetworkTopologyStrategy', {copies}}}",
        )
        driver.set_keyspace(address.keyspace)


def _execute(driver: Any, statement: str) -> None:
    try:
        driver.execute(statement)
    except AlreadyExists:  # another client was faster
        return


def _statements(text: str, release: str) -> Iterator[str]:
    if int(release.split(".", maxsplit=1)[0]) < 5:
        text = text.replace(_NEW_COMPACTION, _OLD_COMPACTION)
    for statement in re.sub(r"--[^\n]*", "", text).split(";"):
        if statement.strip():
            yield statement.strip()


def _check(address: Address, found: int) -> None:
    known = len(migrations(_STORE))
    if found > known:
        raise SchemaMismatch(
            f"{address} has schema version {found}, this shardq knows up to {known}: upgrade shardq"
        )
    if found < known:
        raise SchemaMismatch(
            f"{address} has schema version {found}, this shardq needs {known}: run `shardq create` to apply the rest"
        )
