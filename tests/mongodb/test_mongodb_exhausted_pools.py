"""A driver whose connections are all counted as used, as interrupted threads may leave it, is replaced."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pymongo import CursorType

from shardq.errors import StoreUnavailable
from shardq.storage.mongodb import session
from shardq.storage.mongodb.store import MongoStore


def test_a_client_of_the_driver_without_free_connections_is_replaced_and_the_log_tells(
    open_store: Callable[..., MongoStore],
    mongodb_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(session, "_YOUNG", 0.0)
    separator = "&" if "?" in mongodb_url else "?"
    store = open_store(f"{mongodb_url}{separator}maxPoolSize=1&waitQueueTimeoutMS=300")
    rows = store.session.collection("exhausted")
    rows.insert_many([{"number": number} for number in range(5)])
    # Given a thread that never gives the only connection back
    cursor = rows.find(cursor_type=CursorType.EXHAUST, batch_size=2)
    next(cursor)
    # When another request has waited for one
    with pytest.raises(StoreUnavailable):
        store.ping()
    # Then the next one has a connection
    store.ping()
    assert "no connection came free" in caplog.text
    store.session.collection("exhausted").drop()
    cursor.close()
