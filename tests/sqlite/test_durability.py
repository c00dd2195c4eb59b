"""What waits for the disk and what does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.storage.requests import Acknowledge, Claim, Span
from shardq.storage.sqlite import settling
from shardq.storage.sqlite.session import Session
from shardq.storage.sqlite.store import SqliteStore

NORMAL, FULL = 1, 2


def level(sql: Any, _: int) -> int:
    return sql.execute("PRAGMA synchronous").fetchone()[0]


@pytest.mark.parametrize(
    ("durable", "expected"), [(True, (FULL, NORMAL, FULL)), (False, (NORMAL, NORMAL, NORMAL))]
)
def test_each_transaction_has_its_own_level(
    path: Path, store: SqliteStore, durable: bool, expected: tuple
) -> None:
    session = Session(path, lambda: 0, durable=durable, patience=1)
    assert tuple(session.write(level, durable=each) for each in (True, False, True)) == expected
    session.close()


def test_claims_do_not_wait_for_the_disk_but_appends_and_acks_do(
    store: SqliteStore, send: Callable, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = []
    write = Session.write

    def spy(self: Session, change: Callable, *args: object, durable: bool = True) -> object:
        levels.append(durable)
        return write(self, change, *args, durable=durable)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "write", spy)
    sent = send()
    store.claim(Claim(shard, b"t" * 16, 1, 1_000_000))
    store.acknowledge(Acknowledge(shard, (Span(sent.id, 0, 1, b"t" * 16),)))
    assert levels == [True, False, True]


def test_what_blocks_its_group_is_on_the_disk(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure it would be worked again."""
    with shardq.connect(url) as client:
        queue = client.create_queue("q", on_dead_letter="block")
        queue.producer().send(b"x", group="a")
        (message,) = queue.consumer().receive(1)
        levels = []
        write = Session.write

        def spy(self: Session, change: Callable, *args: object, durable: bool = True) -> object:
            if change in (settling.extend, settling.settle):
                levels.append(durable)
            return write(self, change, *args, durable=durable)  # type: ignore[arg-type]

        monkeypatch.setattr(Session, "write", spy)
        message.dead_letter("it is bad")
        assert levels == [True]


def test_the_log_stays_bounded(path: Path, store: SqliteStore, send: Callable) -> None:
    for _ in range(300):
        send(data=b"x" * 256_000)
    assert path.with_name("queue.db-wal").stat().st_size < 20_000_000


def test_acked_bodies_give_their_room_back_to_new_ones(
    path: Path, store: SqliteStore, shard: Shard, send: Callable
) -> None:
    for index in range(100):
        sent = send(data=b"x" * 256_000)
        token = index.to_bytes(16, "big")
        store.claim(Claim(shard, token, 1, 1_000_000))
        store.acknowledge(Acknowledge(shard, (Span(sent.id, 0, 1, token),)))
    store.close()
    assert path.stat().st_size < 2_000_000


def test_a_closed_store_opens_again(store: SqliteStore, send: Callable, shard: Shard) -> None:
    send()
    store.close()
    store.close()
    assert store.count(shard).ready == 1
