"""Claims that finish what they take: no answer that is lost loses a message."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Finish, Release, Span
from shardq.testing import BundleFactory
from tests.mongodb.lossy_proxy import LossyProxy
from tests.mongodb.test_mongodb_cost import profiled
from tests.steps import clear, counted, persist
from tools.audit.mongodb_documents import read_mongodb

pytestmark = pytest.mark.server

MINUTE = 60_000_000


def pop(shard: Shard) -> Claim:
    return Claim(shard, os.urandom(16), 1, MINUTE, finish=Finish())


@pytest.fixture
def two(store: MongoStore, shard: Shard) -> tuple[Bundle, Bundle]:
    make = BundleFactory(store.now)
    bundles = make(), make()
    store.append(Append(shard, bundles))
    return bundles


def test_a_claim_that_finishes_reads_once_and_writes_once(
    store: MongoStore, shard: Shard, two: tuple[Bundle, Bundle], database: Database
) -> None:
    store.probe([shard])
    with profiled(database) as done:
        (taken,) = store.claim(pop(shard)).slices
    assert taken.finished
    commands = [each["op"] for each in done if each["ns"].endswith(str(shard))]
    assert commands == ["command", "update", "update"]  # a look; the note, and what it finishes


@pytest.mark.parametrize("carried_out", [False, True], ids=["request lost", "response lost"])
def test_a_repetition_after_a_broken_connection_answers_what_was_finished(
    open_store: Callable[..., MongoStore],
    store: MongoStore,
    shard: Shard,
    proxy: LossyProxy,
    proxied: str,
    carried_out: bool,
) -> None:
    failing, make = open_store(proxied), BundleFactory(store.now)
    for fail_at in range(60):
        bundles = make(), make()
        store.append(Append(shard, bundles))
        # When the connection breaks at one of its commands, and the claim is repeated
        claim = pop(shard)
        proxy.arm(fail_at, carried_out=carried_out)
        claimed = persist(lambda claim=claim: failing.claim(claim))  # type: ignore[misc]
        failed = proxy.failed
        proxy.arm(-1)
        # Then it has the first message, and the second one waits
        assert [(each.bundle, each.finished) for each in claimed.slices] == [(bundles[0], True)]
        assert counted(store, shard) == (1, 0, 0)
        clear(store, shard)
        if not failed:
            return
    pytest.fail("the claim has no end")


def test_an_attempt_that_comes_after_its_repetition_finishes_nothing(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    shard: Shard,
    two: tuple[Bundle, Bundle],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a claim whose command is under way for long
    claim, late = pop(shard), []

    def delayed(rows: ShardRows, *args: Any) -> int | None:
        late.append((rows, *args))
        raise OutcomeUnknown("no answer yet")

    with monkeypatch.context() as patched:
        patched.setattr(ShardRows, "take", delayed)
        with pytest.raises(OutcomeUnknown):
            store.claim(claim)
    # When it is repeated while another client has the message, which then gives it back as it was
    other = open_store()
    held = Claim(shard, os.urandom(16), 1, MINUTE)
    assert [each.bundle for each in other.claim(held).slices] == [two[0]]
    (taken,) = store.claim(claim).slices
    assert (taken.bundle, taken.finished) == (two[1], True)
    other.release(Release(shard, (Span(two[0].id, 0, 1, held.token),), started=False))
    # Then the command that comes late finishes nothing
    rows, _, statements, _ = late[0]
    assert rows.change(statements) == 0
    assert [each.bundle for each in other.claim(pop(shard)).slices] == [two[0]]


def test_a_repetition_leaves_nothing_in_a_bundle_that_another_client_has_finished(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    shard: Shard,
    two: tuple[Bundle, Bundle],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim = pop(shard)

    def lost(*_: Any) -> int | None:
        raise OutcomeUnknown("the request was lost")

    with monkeypatch.context() as patched:
        patched.setattr(ShardRows, "take", lost)
        with pytest.raises(OutcomeUnknown):
            store.claim(claim)
    other, held = open_store(), Claim(shard, os.urandom(16), 1, MINUTE)
    assert [each.bundle for each in other.claim(held).slices] == [two[0]]
    other.acknowledge(Acknowledge(shard, (Span(two[0].id, 0, 1, held.token),)))
    assert [each.bundle for each in store.claim(claim).slices] == [two[1]]
    assert read_mongodb(database, shard.queue).strays == []
