"""A driver that has no connection to give, or one that cannot be used, is replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from pymongo import CursorType
from pymongo.hello import Hello

from shardq.errors import StoreUnavailable
from shardq.storage.mongodb import session
from shardq.storage.mongodb.store import MongoStore


@pytest.fixture(autouse=True)
def _replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_YOUNG", 0.0)


def test_a_client_of_the_driver_without_free_connections_is_replaced_and_the_log_tells(
    open_store: Callable[..., MongoStore], mongodb_url: str, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_a_connection_that_was_made_while_its_member_was_in_no_state_to_read_is_not_used_for_ever(
    open_store: Callable[..., MongoStore],
    mongodb_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A member that has just been started is such a one. It may be the primary soon."""
    open_store().create_schema()
    separator = "&" if "?" in mongodb_url else "?"
    store = open_store(f"{mongodb_url}{separator}maxPoolSize=1")
    here = threading.current_thread()  # and not the thread by which the driver finds the primary
    with monkeypatch.context() as driver:
        driver.setattr(Hello, "is_readable", property(lambda _: threading.current_thread() is not here))
        store.ping()
    # When a request finds that connection
    with pytest.raises(StoreUnavailable, match="no primary") as raised:
        store.load_queue("q")
    assert raised.value.retryable
    # Then the next one has another
    assert store.load_queue("q") is None
    assert "another client takes the place" in caplog.text
