"""A call that fails at any of its requests says that nothing was changed only where that is so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from bson.binary import Binary
from pymongo.database import Database

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.mongodb import directory, forwarding, group_changes, read_cursors, removal
from shardq.storage.mongodb.documents import Document
from shardq.storage.mongodb.read_cursors import ReadCursors
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Claim, Fenced, Forward, Peek
from tests.mongodb.intents import let_intents_lapse
from tests.mongodb.interruption import Killed
from tests.steps import EXPECTED, MINUTE, STEPS, clear, counted, prepared

pytestmark = pytest.mark.server

HALF_DONE = ("acknowledge", "extend", "purge")  # of several bundles, by several commands


@contextmanager
def failing_from(request: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the server be away from the n-th request on."""
    translated, made = Session.translated, count()

    @contextmanager
    def counted_ones(session: Session, *, writing: bool) -> Iterator[None]:
        if next(made) >= request:
            raise StoreUnavailable("the server is away")
        with translated(session, writing=writing):
            yield

    with monkeypatch.context() as patched:
        patched.setattr(Session, "translated", counted_ones)
        yield


def stored(database: Database, place: Shard) -> list[Document]:
    return list(database[str(place)].find().sort("_id"))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("step", ["acknowledge", "keep", "extend", "release", "forward", "remove", "purge"])
def test_a_step_that_fails_at_any_request(
    store: MongoStore,
    shard: Shard,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    grouped: bool,
) -> None:
    if grouped and not store.capabilities.groups:
        pytest.skip("a single server has no groups")
    monkeypatch.setattr(removal, "_AT_ONCE", 1)
    monkeypatch.setattr(group_changes, "_AT_ONCE", 1)
    place = Shard(shard.queue, GROUP_TIME_SHARD, 3) if grouped else shard
    errors: set[type[ShardqError]] = set()
    for request in count():
        given = prepared(step, store, place)
        before = stored(database, place)
        try:
            with failing_from(request, monkeypatch):
                STEPS[step](store, place, given)
        except (OutcomeUnknown, StoreUnavailable) as error:
            errors.add(type(error))
            by_intent = step == "forward" and not store.capabilities.groups
            let_intents_lapse(database)
            if by_intent:  # which is completed or undone by whoever finds it
                store.probe([place], deep=True)
            moved = (
                store.find(place, given.new.id, 0) is not None
                if by_intent
                else stored(database, place) != before
            )
            assert type(error) is OutcomeUnknown or not moved
        else:
            assert counted(store, place) == EXPECTED[step]
            break
        clear(store, place)
    assert StoreUnavailable in errors
    assert grouped or step not in HALF_DONE or OutcomeUnknown in errors


@pytest.mark.parametrize("step", ["append", "extend", "release", "forward"])
def test_a_step_is_taken_though_it_cannot_say_that_it_came_late(
    store: MongoStore, shard: Shard, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    given = prepared(step, store, shard)

    def away(*_: object) -> None:
        raise StoreUnavailable("the server is away")

    with monkeypatch.context() as failing:
        failing.setattr(read_cursors, "LATE", -MINUTE)  # everything is late
        failing.setattr(ReadCursors, "lower", away)
        STEPS[step](store, shard, given)
    assert counted(store, shard) == EXPECTED[step]
    clear(store, shard)


@pytest.mark.parametrize("sweeper", [False, True])
def test_an_intent_that_somebody_else_has_undone_is_not_completed(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    shard: Shard,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    sweeper: bool,
) -> None:
    if store.capabilities.groups:
        pytest.skip("a replica set forwards in a transaction")
    given, other, undo = prepared("forward", store, shard), open_store(), forwarding.undo
    undone: list[bool] = []

    def undo_late(*asked: Any) -> bool:
        if not undone:
            undone.append(True)
            let_intents_lapse(database)
            other.probe([shard], deep=True)
        return undo(*asked)

    def die(*_: object) -> bool:
        raise Killed

    # Given a client that stands still, or dies, before its intent stands
    monkeypatch.setattr(forwarding, "_confirm_intent", die if sweeper else lambda *_: False)
    if sweeper:
        with pytest.raises(Killed):
            STEPS["forward"](store, shard, given)
        # When two find it at the same time
        monkeypatch.setattr(forwarding, "undo", undo_late)
        let_intents_lapse(database)
        store.probe([shard], deep=True)
    else:
        # When a deep probe is faster to undo it
        monkeypatch.setattr(forwarding, "undo", undo_late)
        with pytest.raises(StoreUnavailable):
            STEPS["forward"](store, shard, given)
    # Then nothing is there twice, the holder still has its messages, and nothing is left
    assert undone
    assert store.find(shard, given.new.id, 0) is None
    assert sum(counted(store, shard)) == 8
    assert database["shardq.intent"].count_documents({}) == 0
    assert STEPS["acknowledge"](store, shard, given) == Fenced()
    clear(store, shard)


@pytest.mark.parametrize("keep", [False, True])
def test_who_is_told_that_nothing_was_forwarded_holds_the_messages_as_before(
    store: MongoStore, shard: Shard, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    errors: set[type[ShardqError]] = set()
    for request in count():
        given = prepared("forward", store, shard)
        move = Forward(Acknowledge(shard, given.spans, keep), Append(shard, (given.new,)))
        try:
            with failing_from(request, monkeypatch):
                store.forward(move)
        except (OutcomeUnknown, StoreUnavailable) as error:
            errors.add(type(error))
            assert type(error) is OutcomeUnknown or STEPS["acknowledge"](store, shard, given) == Fenced()
        else:
            break
        store.purge(shard)
    assert StoreUnavailable in errors
    assert store.capabilities.groups or OutcomeUnknown in errors


@pytest.mark.parametrize("step", ["acknowledge", "extend", "release"])
def test_a_step_of_which_a_part_is_gone_that_fails_at_any_request(
    store: MongoStore, shard: Shard, database: Database, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    for request in count():
        given = prepared(step, store, shard)
        for position in range(3):
            assert store.remove(shard, given.bundles[0].id, position)
        before = stored(database, shard)
        try:
            with failing_from(request, monkeypatch):
                STEPS[step](store, shard, given)
        except (OutcomeUnknown, StoreUnavailable) as error:
            assert type(error) is OutcomeUnknown or stored(database, shard) == before
        else:
            break
        store.purge(shard)
    assert request > 1


def test_a_claim_that_others_get_ahead_of_and_that_fails_at_any_request(
    store: MongoStore, open_store: Callable[..., MongoStore], shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, take, translated = open_store(), ShardRows.take, Session.translated
    came: list[bool] = []

    def take_late(rows: ShardRows, *asked: Any) -> int | None:
        if not came:
            came.append(True)
            with monkeypatch.context() as theirs:
                theirs.setattr(Session, "translated", translated)
                other.claim(Claim(shard, os.urandom(16), 3, MINUTE))
        return take(rows, *asked)

    for request in count():
        given = prepared("claim", store, shard)
        came.clear()
        try:
            with failing_from(request, monkeypatch), monkeypatch.context() as raced:
                raced.setattr(ShardRows, "take", take_late)
                STEPS["claim"](store, shard, given)
        except (OutcomeUnknown, StoreUnavailable) as error:
            held = [
                each for each in store.peek(Peek(shard, 100, held=True)).slices if each.token == given.token
            ]
            assert type(error) is OutcomeUnknown or not held
        else:
            break
        store.purge(shard)
    assert request > 2


def test_a_claim_is_answered_though_it_cannot_raise_the_low_watermarks(
    store: MongoStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("the server is away")

    given = prepared("claim", store, shard)
    monkeypatch.setattr(read_cursors.ReadCursor, "raised", lambda cursor, _: cursor.watermarks)
    monkeypatch.setattr(read_cursors, "raise_to", away)
    STEPS["claim"](store, shard, given)
    assert counted(store, shard) == EXPECTED["claim"]


def test_an_append_whose_collection_is_closed_half_way(
    store: MongoStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = ShardRows.insert

    def insert_first(rows: ShardRows, documents: Sequence[Document], uuid: Binary) -> bool:
        assert insert(rows, documents[:1], uuid)  # the server inserts bit by bit
        monkeypatch.setattr(directory, "enter", away)
        return False

    def away(*_: object) -> None:
        raise StoreUnavailable("the server is away")

    given = prepared("append", store, shard)
    STEPS["append"](store, shard, prepared("append", store, shard))
    store.purge(shard)
    monkeypatch.setattr(ShardRows, "insert", insert_first)
    with pytest.raises(OutcomeUnknown):
        STEPS["append"](store, shard, given)
