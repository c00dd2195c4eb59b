"""What a message costs that is sent alone: rows and statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from shardq.base.shard import Shard
from shardq.storage.bundles import BundleData, encode_bundle
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    ClaimedSlice,
    Extend,
    Fenced,
    Finish,
    Release,
    Span,
)
from shardq.storage.sqlite.bundles import SHORT
from shardq.storage.sqlite.store import SqliteStore

TOKEN = b"t" * 16


def rows(path: Path) -> tuple[int, int]:
    """How many slices and long data there are."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT (SELECT count(*) FROM slice), (SELECT count(*) FROM bundle_data)"
        ).fetchone()


def statements(store: SqliteStore, work: Callable[[], object]) -> int:
    """How many statements it takes, those that begin and end transactions included."""
    writer = store.session.write(lambda sql, _: sql)
    seen: list[str] = []
    writer.set_trace_callback(seen.append)
    work()
    writer.set_trace_callback(None)
    return len(seen)


def spans(slices: tuple[ClaimedSlice, ...], token: bytes = TOKEN) -> tuple[Span, ...]:
    return tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)


@pytest.mark.parametrize("size", [1, SHORT, SHORT + 1, 100_000])
def test_a_bundle_is_one_row_and_long_data_stands_beside_it(
    path: Path, store: SqliteStore, shard: Shard, send: Callable, size: int
) -> None:
    sent = send(data=bytes(size))
    assert rows(path) == (1, int(size > SHORT))
    (taken,) = store.claim(Claim(shard, TOKEN, 1, 1_000_000)).slices
    assert taken.bundle == sent
    store.acknowledge(Acknowledge(shard, spans((taken,))))
    assert rows(path) == (0, 0)


@pytest.mark.parametrize("size", [SHORT, SHORT + 1])
def test_the_data_of_a_cut_bundle_is_there_until_its_last_message_has_gone(
    path: Path, store: SqliteStore, shard: Shard, send: Callable, size: int
) -> None:
    sent = send(3, data=bytes(size))
    for position in range(3):
        token = bytes([position]) * 16
        (taken,) = store.claim(Claim(shard, token, 1, 1_000_000)).slices
        assert (taken.bundle, taken.first, taken.count) == (sent, position, 1)
        assert store.acknowledge(Acknowledge(shard, spans((taken,), token))) == Fenced()
        assert rows(path) == (int(position < 2), int(size > SHORT and position < 2))


def test_a_send_takes_five_statements(
    store: SqliteStore, shard: Shard, send: Callable, bundle: Callable
) -> None:
    send()
    one = bundle()
    assert statements(store, lambda: store.append(Append(shard, (one,)))) == 5


def test_an_ack_of_a_message_that_was_sent_alone_takes_five_statements(
    store: SqliteStore, shard: Shard, send: Callable
) -> None:
    """Two begin and end the transaction, one finds and deletes the message, and two remember its id."""
    send()
    send()
    first, second = (store.claim(Claim(shard, token * 16, 1, 9_000_000)).slices for token in (b"a", b"b"))
    store.acknowledge(Acknowledge(shard, spans(first, b"a" * 16)))
    assert statements(store, lambda: store.acknowledge(Acknowledge(shard, spans(second, b"b" * 16)))) == 5


def test_settling_many_takes_as_many_statements_as_settling_a_few(
    store: SqliteStore, shard: Shard, send: Callable
) -> None:
    def counts(messages: int) -> list[int]:
        for _ in range(messages):
            send()
        counted = [
            statements(store, lambda: taken.append(store.claim(Claim(shard, TOKEN, messages, 9_000_000))))
        ]
        held = spans(taken[-1].slices)
        counted += [
            statements(store, lambda: store.extend(Extend(shard, held, 9_000_000))),
            statements(store, lambda: store.release(Release(shard, held, started=False))),
        ]
        taken.append(store.claim(Claim(shard, TOKEN, messages, 9_000_000)))
        return [*counted, statements(store, lambda: store.acknowledge(Acknowledge(shard, held)))]

    taken: list = []
    counts(4)  # after which the period is known in which ids are finished
    assert counts(4) == counts(300)
    assert store.count(shard).in_flight == 0


def test_the_acks_of_several_claims_are_settled_together(
    store: SqliteStore, shard: Shard, send: Callable
) -> None:
    named: list[Span] = []
    for token in (b"a" * 16, b"b" * 16):
        for _ in range(20):
            send()
        named += spans(store.claim(Claim(shard, token, 20, 9_000_000)).slices, token)
    assert statements(store, lambda: store.acknowledge(Acknowledge(shard, tuple(named)))) < 20
    assert store.count(shard).in_flight == 0


def test_what_is_taken_of_a_bundle_and_finished_costs_no_row_and_few_statements(
    path: Path, store: SqliteStore, shard: Shard, send: Callable
) -> None:
    """Nothing of the bundle is over before its last message."""
    sent = send(4, data=encode_bundle(BundleData([bytes(SHORT)] * 4)))
    finishing = Claim(shard, TOKEN, 1, 1_000_000, finish=Finish())
    for first in (0, 1):
        (taken,) = store.claim(msgspec.structs.replace(finishing, token=bytes([first]) * 16)).slices
        assert (taken.first, taken.count, taken.finished, taken.bundle) == (first, 1, True, sent)
        assert rows(path) == (1, 1)
    (held,) = store.claim(Claim(shard, TOKEN, 1, 1_000_000)).slices
    assert rows(path) == (2, 1)
    # begin, shard, what the span holds, what else the bundle has, delete, commit; and one for durability
    assert statements(store, lambda: store.acknowledge(Acknowledge(shard, spans((held,))))) <= 7
    assert rows(path) == (1, 1)
    assert not store.append(Append(shard, (sent,)))  # a repeated send finds it
    (last,) = store.claim(msgspec.structs.replace(finishing, token=b"z" * 16)).slices
    assert (last.first, last.finished, rows(path)) == (3, True, (0, 0))
    store.append(Append(shard, (sent,)))
    assert rows(path) == (0, 0)
