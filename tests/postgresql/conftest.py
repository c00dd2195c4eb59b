"""A queue on PostgreSQL, and a proxy that makes requests fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

from shardq.base.shard import Shard  # noqa: E402
from shardq.storage.postgresql.store import PostgresStore  # noqa: E402
from shardq.storage.postgresql.url import parse  # noqa: E402
from shardq.storage.requests import QueueRecord  # noqa: E402
from tests.postgresql.lossy_proxy import Pooling, PostgresProxy  # noqa: E402


@pytest.fixture(scope="module")
def schema_url(postgresql_url: str) -> Iterator[str]:
    """The URL of a schema of this file's own."""
    schema = f"t{os.urandom(5).hex()}"
    yield f"{postgresql_url}?schema={schema}"
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def open_store(schema_url: str) -> Iterator[Callable[..., PostgresStore]]:
    stores: list[PostgresStore] = []

    def open_one(url: str = schema_url) -> PostgresStore:
        address, pool_size = parse(url)
        stores.append(PostgresStore(address, pool_size=pool_size))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., PostgresStore]) -> PostgresStore:
    return open_store()


@pytest.fixture
def shard(store: PostgresStore) -> Iterator[Shard]:
    queue = f"c{os.urandom(6).hex()}"
    assert store.create_queue(QueueRecord(queue, b"", 1))
    yield Shard(queue, 0, 0)
    store.drop_queue(queue)


@pytest.fixture
def proxy(schema_url: str) -> Iterator[PostgresProxy]:
    host, port = parse(schema_url)[0].hosts[0].split(":")
    proxy = PostgresProxy(host, int(port))
    yield proxy
    proxy.close()


@pytest.fixture
def proxied(schema_url: str, proxy: PostgresProxy) -> str:
    """The URL of the same schema through the proxy."""
    server = parse(schema_url)[0].hosts[0]
    url = schema_url.replace(server, f"127.0.0.1:{proxy.port}")
    return f"{url}&prepare=false&sslmode=disable&gssencmode=disable"


@pytest.fixture
def pooled(proxied: str, proxy: PostgresProxy, schema_url: str) -> Iterator[str]:
    """The URL of the same schema through a pooler."""
    host, port = parse(schema_url)[0].hosts[0].split(":")
    pooling = Pooling(host, int(port))
    yield proxied.replace(f":{proxy.port}", f":{pooling.port}")
    pooling.close()
