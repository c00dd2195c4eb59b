"""The option ``signals`` of a store's URL."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.storage.listening import Waiter
from shardq.storage.opening import open_store
from shardq.storage.sqlite.store import SqliteStore
from shardq.storage.wrapped_store import SignalledStore
from tests.redis_server import OwnRedis

SECRET = "s3cret"


def store_of(url: str) -> SignalledStore:
    store = open_store(url, SystemClock())
    assert isinstance(store, SignalledStore)
    return store


def test_a_store_without_the_option_is_as_it_was(url: str) -> None:
    assert isinstance(open_store(url, SystemClock()), SqliteStore)


@pytest.mark.parametrize(
    "line", ["redis://localhost:1/3", quote("redis://localhost:1/3"), quote("redis://localhost:1/3", "")]
)
@pytest.mark.parametrize(
    "options", ["?signals={}", "?synchronous=normal&signals={}", "?signals={}&synchronous=normal"]
)
def test_the_line_is_given_as_it_is_or_quoted_beside_the_stores_options(
    url: str, line: str, options: str
) -> None:
    store: Any = store_of(url + options.format(line))
    assert store.channel.redis_channel == "shardq:3"
    (synchronous,) = [each for each in store.inner.diagnose() if each.name == "synchronous"]
    assert synchronous.ok is ("normal" not in options)


@pytest.mark.parametrize("login", ["user:a%40%2Fb%26c", "user:a%2540%252Fb%2526c"])
def test_special_characters_of_a_password_arrive(url: str, login: str) -> None:
    line = f"rediss://{login}@localhost/0"
    store: Any = store_of(f"{url}?signals={line if '%25' not in login else line.replace('://', '%3A%2F%2F')}")
    assert store.channel.pool.get().connection_kwargs["password"] == "a@/b&c"


@pytest.mark.parametrize(
    "scheme",
    [
        "cassandra://127.0.0.1/shardq",
        "mongodb://127.0.0.1/shardq",
        "postgresql://127.0.0.1/db",
        "sqlite:///queue.db",
    ],
)
def test_every_store_has_signals_then(scheme: str) -> None:
    pytest.importorskip(
        {"cassandra": "cassandra.query", "mongodb": "pymongo", "postgresql": "psycopg", "sqlite": "sqlite3"}[
            scheme.split(":")[0]
        ]
    )
    assert store_of(f"{scheme}?signals=redis://localhost:1").capabilities.signals


@pytest.mark.parametrize(
    "line",
    [
        f"redis://user:{SECRET}@",
        f"redis://user:{SECRET}/x@localhost/0",
        f"redis://user:{SECRET}@localhost:{SECRET}/0",
        f"redis://user:{SECRET}&more@localhost/0",
        f"redis://user:more&{SECRET}=@localhost/0",
        f"redis://user:{SECRET}#@localhost/0",
        f"redis://:{SECRET}@localhost/0?no_option=1",
        f"redis://[:{SECRET}@localhost/0",
        f"nothing://:{SECRET}@localhost/0",
        f"{SECRET}@localhost",
        f"redis://:{SECRET}@localhost&signals=redis://localhost",
        "",
    ],
)
def test_what_cannot_be_read_is_refused_without_the_password(url: str, line: str) -> None:
    with pytest.raises(shardq.InvalidSetting) as refused:
        shardq.connect(f"{url}?signals={line}")
    assert "signals" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("store", ["sqlite:///queue.db", "sqlite://no-file"])
def test_a_misspelt_option_does_not_show_the_password(store: str) -> None:
    with pytest.raises(shardq.InvalidSetting) as refused:
        shardq.connect(f"{store}?signal=redis://:{SECRET}@localhost")
    assert SECRET not in str(refused.value)


def test_a_driver_that_is_missing_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("shardq.storage.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    for scheme in ("redis", "rediss"):
        with pytest.raises(shardq.InvalidSetting, match=r"pip install 'shardq\[redis\]'"):
            shardq.connect(f"{url}?signals={scheme}://localhost")


def test_the_password_is_shown_nowhere(
    guarded_redis: OwnRedis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = guarded_redis.url.replace("shardq-secret", SECRET)
    for line, fits in ((guarded_redis.url, True), (wrong, False)):
        store: Any = store_of(f"{url}?signals={line}")
        findings = store.diagnose()
        assert findings[-1].name == "signals"
        assert findings[-1].ok is fits
        Waiter(store).wait(["orders"], 0.1)
        shown = f"{findings} {store!r} {vars(store)!r} {vars(store.channel)!r} {caplog.text}"
        assert SECRET not in shown
        assert "shardq-secret" not in shown
        store.close()


def test_clients_that_name_a_line_send_and_receive(redis_url: str, tmp_path: Path) -> None:
    with shardq.connect(f"sqlite:///{tmp_path}/queue.db?signals={redis_url}") as client:
        queue = client.create_queue("orders", shards=1)
        with queue.producer() as producer:
            producer.send(b"one")
        with queue.consumer() as consumer:
            assert [message.body for message in consumer.receive(wait=5)] == [b"one"]
