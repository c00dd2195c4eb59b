"""Claims that finish what they take, and whose commit is not answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shardq import errors
from shardq.base.shard import Shard
from shardq.storage.bundles import BundleData, encode_bundle
from shardq.storage.requests import Bundle, Claim, Claimed, ClaimedSlice, Finish, Sweep
from shardq.storage.sqlite.claims import Answers
from shardq.storage.sqlite.connections import Connection
from shardq.storage.sqlite.session import Session
from shardq.storage.sqlite.store import SqliteStore
from shardq.testing import ManualClock


@pytest.mark.parametrize("stored", [True, False])
def test_a_claim_whose_commit_was_not_answered_is_answered_when_it_is_repeated(
    store: SqliteStore, send: Callable, shard: Shard, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    # Given a claim that finishes a message, and whose commit fails after it was made, or before
    sent, later = send(data=encode_bundle(BundleData([b"a"]))), send(data=encode_bundle(BundleData([b"b"])))
    claim = Claim(shard, b"t" * 16, 1, 30_000_000, finish=Finish())
    with monkeypatch.context() as patch:
        fail_commits(patch, after=stored)
        with pytest.raises(errors.OutcomeUnknown):
            store.claim(claim)
    # When others claim meanwhile, nothing is finished for them, so that the mark stays
    (other,) = store.claim(Claim(shard, b"o" * 16, 1, 30_000_000, finish=Finish())).slices
    assert (other.bundle.id, other.finished) == ((later if stored else sent).id, False)
    # Then the repetition has what the first attempt finished, or claims afresh
    (again,) = store.claim(claim).slices
    assert again.finished
    assert again.bundle.id == (sent if stored else later).id
    assert store.count(shard).ready == 0


def test_the_marks_of_claims_whose_lease_is_over_are_swept(
    path: Path, store: SqliteStore, send: Callable, shard: Shard, clock: ManualClock
) -> None:
    send(data=encode_bundle(BundleData([b"a"])))
    assert store.claim(Claim(shard, b"t" * 16, 1, 1_000_000, finish=Finish())).slices[0].finished
    clock.advance(2)
    store.sweep(Sweep("orders", 0))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM finishing").fetchone() == (0,)


def fail_commits(patch: pytest.MonkeyPatch, *, after: bool) -> None:
    """Let commits fail as on a broken disk, after they were made or before."""
    begin = Session.begin

    def begin_on_a_broken_disk(session: Session, connection: Connection, *, durable: bool) -> None:
        begin(session, connection, durable=durable)
        connection.sql = BrokenDisk(connection.sql, after=after)  # type: ignore[assignment]

    patch.setattr(Session, "begin", begin_on_a_broken_disk)


class BrokenDisk:
    """A connection whose commits fail, after they were made or before."""

    def __init__(self, sql: sqlite3.Connection, *, after: bool) -> None:
        self._sql, self._after = sql, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sql, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement != "COMMIT":
            return self._sql.execute(statement, *values)
        self._sql.execute("COMMIT" if self._after else "ROLLBACK")
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error


@pytest.mark.parametrize(("messages", "remembered"), [(1, 32), (400, 2), (5_000, 1)])
def test_few_answers_are_remembered_and_fewer_where_they_have_many_messages(
    messages: int, remembered: int
) -> None:
    answers = Answers()
    tokens = [bytes([number]) * 16 for number in range(40)]
    for token in tokens:
        piece = ClaimedSlice(Bundle(token, 5, 0, 0, messages, b""), 0, messages, 1, finished=True)
        answers.begin(token, Claimed((piece,), lease_until=100))
        answers.end(token, stored=True)
    assert [token for token in tokens if answers.known(token, now=0)] == tokens[-remembered:]
