"""The keyspace and its tables: which version they have, and how they are made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cassandra import AlreadyExists
from cassandra.query import SimpleStatement
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from shardq.errors import OutcomeUnknown, SchemaMismatch
from shardq.storage.cassandra.connecting import Address
from shardq.storage.cassandra.guarantees import require_overlap
from shardq.storage.cassandra.session import Session
from shardq.storage.migrations import migrations

__all__ = ["apply", "require_current", "statements", "version"]

_STORE = "cassandra"
_PATIENCE = 30.0  # seconds for servers to agree on a schema
_VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (part text PRIMARY KEY, version int)"
_VERSION = "SELECT version FROM schema_version WHERE part = 'shardq'"
_SET_VERSION = "UPDATE schema_version SET version = %s WHERE part = 'shardq' IF version = %s"
_KEYSPACE = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
_RELEASE = "SELECT release_version, data_center FROM system.local"
_NEW_COMPACTION = "UnifiedCompactionStrategy"  # from 5.0 on
_OLD_COMPACTION = "LeveledCompactionStrategy"
_NEW_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")


def version(session: Session) -> int:
    """Return the number of the last migration that was applied; 0 when none was."""
    rows = session.read_unprepared(_VERSION)
    return int(rows[0][0]) if rows else 0


def require_current(session: Session) -> None:
    """Raise SchemaMismatch unless the keyspace has this client's schema, InvalidSetting if reads may miss writes."""
    _check(session.address, version(session))
    require_overlap(session)


def apply(session: Session) -> None:
    """Make keyspace and tables as far as they are missing; raises SchemaMismatch when they are newer.

    A user who may not create anything can call it where there is nothing to create.
    """
    try:
        require_current(session)
    except SchemaMismatch:
        attempts = Retrying(
            retry=retry_if_exception(_in_flux),
            stop=stop_after_delay(_PATIENCE),
            wait=wait_random(0.1, 0.5),
            reraise=True,
        )
        attempts(_migrate, session)


def _in_flux(error: BaseException) -> bool:
    """Return whether a server did not know yet what another has created at this moment."""
    return isinstance(error, OutcomeUnknown) or (
        isinstance(error, SchemaMismatch) and error.__cause__ is not None
    )


def _migrate(session: Session) -> None:
    with session.unprepared() as driver:
        definition = _Definition(driver, session.address.keyspace)
        release = definition.make_keyspace(session.address)
        definition.change(_VERSION_TABLE)
        for migration in migrations(_STORE):
            found = definition.ask(_VERSION)
            done = int(found[0]) if found else 0
            if done > len(migrations(_STORE)):
                _check(session.address, done)
            if done < migration.number:
                for statement in statements(migration.text, release):
                    definition.change(statement)
                definition.ask(_SET_VERSION, migration.number, done or None)


class _Definition:
    """Statements that define data, on servers that learn of each other's."""

    def __init__(self, driver: Any, keyspace: str) -> None:
        self._driver, self._keyspace = driver, keyspace

    def make_keyspace(self, address: Address) -> str:
        """Make it unless it is there; returns the release of the server."""
        release, data_center = self._driver.execute(_RELEASE).one()
        if self._driver.execute(_KEYSPACE, (self._keyspace,)).one() is None:
            self._driver.execute(_new_keyspace(address, data_center))
            self._agree()
        return str(release)

    def ask(self, query: str, *values: object) -> Any:
        """Return the first row."""
        return self._driver.execute(SimpleStatement(query, keyspace=self._keyspace), values).one()

    def change(self, statement: str) -> None:
        """Do it, and wait until all servers know of it, even if another client has done it a moment ago."""
        with suppress(AlreadyExists):
            self.ask(_identified(statement, self._keyspace))
        self._agree()

    def _agree(self) -> None:
        self._driver.cluster.control_connection.wait_for_schema_agreement()


def _new_keyspace(address: Address, data_center: str) -> str:
    """Return the statement. The names of keyspace and data centres were checked with the URL."""
    copies = ", ".join(f"'{name}': {count}" for name, count in address.replication or ((data_center, 1),))
    return (
        f'CREATE KEYSPACE IF NOT EXISTS "{address.keyspace}" '
        f"WITH replication = {{'class': 'NetworkTopologyStrategy', {copies}}}"
    )


def _identified(statement: str, keyspace: str) -> str:
    """Give a new table an id that follows from its name.

    With random ids, two nodes that are asked to create a table at the same time make two, and never agree.
    """
    table = _NEW_TABLE.match(statement)
    if table is None:
        return statement
    table_id = uuid5(NAMESPACE_URL, f"shardq:{keyspace}.{table[1]}")
    return f"{statement} {'AND' if ' WITH ' in statement else 'WITH'} id = {table_id}"


def statements(text: str, release: str) -> Iterator[str]:
    """Return the statements of a migration, as a release of the server understands them."""
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
