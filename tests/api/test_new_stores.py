"""A store without a schema has no queues, whatever kind it is; a schema of another version is an error."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

import shardq
from shardq.client import Client
from shardq.testing.seam import store_of
from tests.any_store import any_url

__all__ = ["any_url"]


@pytest.fixture
def new(any_url: str) -> Iterator[Client]:
    """A client of a store that nobody has used."""
    path = urlsplit(any_url).path
    new = any_url.replace(path, f"{path}_nobody_uses")
    if any_url.startswith("postgresql:"):  # which makes no database
        new = f"{any_url}?schema=nobody_uses"
    with shardq.connect(new) as client:
        yield client


def test_a_new_store_has_no_queues(new: Client) -> None:
    assert not new.exists("orders")
    assert not new.queues() and not new.schedules.list() and not new.topics()
    for look in (new.queue, new.delete_queue):
        with pytest.raises(shardq.QueueNotFound, match="'orders'"):
            look("orders")


def test_an_unsuitable_schema_does_not_pass_for_a_new_store(client: Client, monkeypatch) -> None:
    def load_queue(name: str) -> None:
        raise shardq.SchemaMismatch("the schema is of version 99: upgrade shardq")

    monkeypatch.setattr(store_of(client), "load_queue", load_queue)
    for look in (client.exists, client.queue, client.delete_queue):
        with pytest.raises(shardq.SchemaMismatch):
            look("orders")
