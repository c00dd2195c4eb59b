"""Transactions of groups that servers disturb, do not answer, or lose the collection of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import (
    AutoReconnect,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.errors import OutcomeUnknown, QueueNotFound, ShardqError, StoreUnavailable
from shardq.storage.mongodb import transactions
from shardq.storage.mongodb.groups import GroupRows, Groups
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Append
from tests.steps import EXPECTED, STEPS, clear, counted, persist, prepared

pytestmark = pytest.mark.server


@pytest.fixture
def grouped(store: MongoStore, shard: Shard) -> Shard:
    if not store.capabilities.groups:
        pytest.skip("a single server has no groups")
    return Shard(shard.queue, GROUP_TIME_SHARD, 3)


@contextmanager
def failing(url: str, command: str, *, times: int = 1, **how: Any) -> Iterator[None]:
    """The server fails at a command so many times."""
    point = {"configureFailPoint": "failCommand"}
    data = {"failCommands": [command], "appName": "shardq"} | how
    with MongoClient(url) as client:
        client.admin.command(point | {"mode": {"times": times}, "data": data})
        try:
            yield
        finally:
            client.admin.command(point | {"mode": "off"})


UNCONFIRMED = {"code": 64, "errmsg": "waiting for replication timed out"}
DISTURBED = {"errorCode": 112, "errorLabels": ["TransientTransactionError"]}
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a read is disturbed": ("find", DISTURBED),
    "a change is disturbed": ("update", DISTURBED),
    "a commit is disturbed": ("commitTransaction", DISTURBED),
    "a commit is lost": ("commitTransaction", {"closeConnection": True}),
    "a commit is not confirmed": ("commitTransaction", {"times": 2, "writeConcernError": UNCONFIRMED}),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_step_whose_transaction_is_disturbed_is_done_once(
    store: MongoStore, grouped: Shard, mongodb_url: str, fault: str
) -> None:
    command, how = FAULTS[fault]
    for step in ("append", "claim", "acknowledge", "release"):
        given = prepared(step, store, grouped)
        with failing(mongodb_url, command, **how):
            persist(partial(STEPS[step], store, grouped, given))
        assert counted(store, grouped) == EXPECTED[step], step
        clear(store, grouped)


def test_a_commit_that_is_never_confirmed_has_an_unknown_outcome_and_can_be_repeated(
    store: MongoStore, grouped: Shard, mongodb_url: str
) -> None:
    given = prepared("acknowledge", store, grouped)
    do = partial(STEPS["acknowledge"], store, grouped, given)
    with (
        failing(mongodb_url, "commitTransaction", times=100, writeConcernError=UNCONFIRMED),
        pytest.raises(OutcomeUnknown, match="repeat"),
    ):
        do()
    persist(do)
    assert counted(store, grouped) == EXPECTED["acknowledge"]


class _Commits:
    """A transaction whose commits fail in turn."""

    def __init__(self, *errors: PyMongoError) -> None:
        self._errors = list(errors)

    def commit_transaction(self) -> None:
        raise self._errors.pop(0)


UNKNOWN: dict[str, Any] = {"errorLabels": ["UnknownTransactionCommitResult"]}
TRANSIENT: dict[str, Any] = {"errorLabels": ["TransientTransactionError"]}


def _lost() -> PyMongoError:
    return AutoReconnect("connection closed", UNKNOWN)


def _nowhere() -> PyMongoError:
    return ServerSelectionTimeoutError("no primary found", UNKNOWN)


@pytest.mark.parametrize(
    "later",
    [
        [_nowhere()],
        [NotPrimaryError("stepping down", {"code": 11602, **UNKNOWN})] * 2,
        [OperationFailure("not allowed any more", 13)],
        [_lost(), _lost()],
    ],
    ids=["no server is found", "the primary steps down", "it is refused", "its repetitions are lost"],
)
def test_whatever_follows_a_commit_that_was_not_answered_its_outcome_is_unknown(
    store: MongoStore, later: list[PyMongoError]
) -> None:
    with pytest.raises(OutcomeUnknown):
        transactions.commit(store.session, _Commits(_lost(), *later))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "errors",
    [
        [_nowhere()],
        [_lost(), OperationFailure("no such transaction", 251, TRANSIENT)],
    ],
    ids=["it was not sent", "the server knows no such transaction"],
)
def test_what_surely_was_not_committed_is_tried_again_or_reported_so(
    store: MongoStore, errors: list[PyMongoError]
) -> None:
    with pytest.raises(ShardqError) as raised:
        transactions.commit(store.session, _Commits(*errors))  # type: ignore[arg-type]
    assert transactions.is_transient(raised.value) or isinstance(raised.value, StoreUnavailable)


def test_a_transaction_of_a_collection_that_is_another_one_by_now_begins_anew(
    open_store: Callable[..., MongoStore], store: MongoStore, grouped: Shard, database: Database
) -> None:
    for step in ("append", "claim", "acknowledge", "release", "remove", "purge"):
        # Given a client that knows the collection of the shard, which others drop and make again
        other = open_store()
        known = other.client.collections.uuid(grouped)
        assert other.client.collections.seen(grouped) == known
        database.drop_collection(str(grouped))
        store.client.collections.is_not(grouped)
        given = prepared(step, store, grouped)
        assert store.client.collections.seen(grouped) != known
        persist(partial(STEPS[step], other, grouped, given))
        assert counted(store, grouped) == EXPECTED[step], step
        clear(store, grouped)


def test_a_queue_that_is_deleted_before_a_transaction_begins_to_read_is_not_found(
    open_store: Callable[..., MongoStore], store: MongoStore, grouped: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = prepared("acknowledge", store, grouped)
    monkeypatch.setattr(
        GroupRows, "read", _first(GroupRows.read, partial(open_store().drop_queue, grouped.queue))
    )
    with pytest.raises(QueueNotFound):
        store.append(Append(grouped, (given.new,)))
    assert STEPS["acknowledge"](store, grouped, given).gone == given.spans  # type: ignore[attr-defined]


def test_a_queue_that_is_deleted_while_a_transaction_is_at_work_is_deleted_after_it(
    open_store: Callable[..., MongoStore], store: MongoStore, grouped: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = prepared("acknowledge", store, grouped)
    other = open_store()
    dropping = threading.Thread(target=other.drop_queue, args=(grouped.queue,))
    monkeypatch.setattr(Groups, "write", _first(Groups.write, dropping.start))
    fenced = STEPS["acknowledge"](store, grouped, given)
    assert fenced.gone in ((), given.spans)  # type: ignore[attr-defined]
    dropping.join(60)
    with pytest.raises(QueueNotFound):
        store.append(Append(grouped, (given.new,)))
    assert str(grouped) not in other.session.database.list_collection_names()


def test_what_a_claim_that_is_repeated_while_it_is_under_way_takes_is_one_thing(
    open_store: Callable[..., MongoStore], store: MongoStore, grouped: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, other = prepared("claim", store, grouped), open_store()
    commit = transactions.commit
    answers: list[Any] = []

    def repeat(*arguments: Any) -> None:
        monkeypatch.setattr(transactions, "commit", commit)
        answers.append(STEPS["claim"](other, grouped, given))
        commit(*arguments)

    monkeypatch.setattr(transactions, "commit", repeat)
    first: Any = STEPS["claim"](store, grouped, given)
    # Then the repetition is told that the other one is under way, or of what that one took
    assert not first.contended
    assert all(answer.contended or answer.slices == first.slices for answer in answers)
    assert answers
    assert counted(store, grouped) == (4, 4, 0)


def _first(method: Callable[..., Any], do: Callable[[], object]) -> Callable[..., Any]:
    """Do something before the method is called for the first time."""
    left = [do]

    def once(*arguments: Any, **options: Any) -> Any:
        while left:
            left.pop()()
        return method(*arguments, **options)

    return once
