"""A connection that an interrupt has dropped is closed at once, and keeps no lock."""

from __future__ import annotations

import gc
import os
import weakref

import pytest

from shardq.storage.postgresql.connections import Connection, Driver, Sql
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from tests.processes import eventually

pytestmark = pytest.mark.server


class Interrupt(BaseException):
    """Raised at any moment, as by the timeout of a task."""


def test_an_interrupt_while_a_statement_is_cancelled_leaves_no_lock(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = int.from_bytes(os.urandom(6), "big")

    def change(sql: Sql, _now: int) -> None:
        sql.all("SELECT pg_advisory_xact_lock($1)", number)
        sql.connection.pgconn.send_query(b"SELECT 1")
        raise Interrupt

    def cancel(*_: object, **__: object) -> None:
        raise Interrupt

    monkeypatch.setattr(Driver, "cancel_safe", cancel)
    with pytest.raises(Interrupt):
        store.session.write(change)
    free = "SELECT pg_try_advisory_xact_lock($1)"
    assert eventually(lambda: store.session.read(lambda sql: sql.one(free, number)) == (True,))


def test_a_connection_that_nobody_holds_is_closed_without_a_collection(
    store: PostgresStore, schema_url: str
) -> None:
    gc.disable()
    try:
        connection = Connection(parse(schema_url)[0], store.now)
        driver = weakref.ref(connection.driver)
        with pytest.warns(ResourceWarning, match="still open"):
            del connection
        assert driver() is None
    finally:
        gc.enable()
