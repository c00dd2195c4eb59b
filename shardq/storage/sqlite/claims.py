"""Taking slices under a claim's token, or finishing them in the same step."""

from __future__ import annotations

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Mapping
from operator import itemgetter

import msgspec

from shardq.storage.requests import Bundle, Claim, Claimed, ClaimedSlice
from shardq.storage.sqlite import bundles, directory, groups
from shardq.storage.sqlite.bundles import BUNDLE, STILL_BEHIND, Change
from shardq.storage.sqlite.groups import Row
from shardq.storage.sqlite.slicing import skip, split, split_off

__all__ = ["Answers", "Taken", "expire", "finish", "read", "take"]

SQL_HELD = f"""
    SELECT slice_key, first, count, deliveries + unstarted, {BUNDLE} FROM slice INDEXED BY slice_by_token
    WHERE shard_key = ? AND token = ? ORDER BY place, priority, sent_due, bundle_id, first
"""
SQL_DELIVERABLE = f"""
    SELECT slice_key, first, count, deliveries + 1, {BUNDLE} FROM slice INDEXED BY slice_by_due
    WHERE shard_key = ? AND priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due <= ? AND processed_at IS NULL
    ORDER BY priority, due, bundle_id, first
"""
_PROLONG = Change("UPDATE slice SET due = ?2 WHERE {0}")
_PROLONG_GROUPS = Change(f"UPDATE slice SET due = max(due, ?2 + {STILL_BEHIND}) WHERE {{0}}")
_TAKE = Change(f"""
    UPDATE slice SET due = ?2 + {STILL_BEHIND}, token = ?3, deliveries = deliveries + 1 - ?4, unstarted = ?4 WHERE {{0}}
""")
_TAKE_HEAD = f"""
    UPDATE slice SET count = ?5, due = ?2 + {STILL_BEHIND}, token = ?3, deliveries = deliveries + 1 - ?4, unstarted = ?4
    WHERE slice_key = ?1
"""
SQL_READ = """
    SELECT slice_key, data_key
    FROM slice INDEXED BY slice_by_token JOIN bundle_data USING (data_key) WHERE shard_key = ? AND token = ?
"""


_DATA_KEY = "SELECT data_key FROM slice JOIN bundle_data USING (data_key) WHERE slice_key = ?"
_KEEP = Change("""
    UPDATE slice SET processed_at = ?2, token = NULL, deliveries = deliveries + 1, unstarted = 0 WHERE {0}
""")
_MARK = "INSERT OR REPLACE INTO finishing (client, token, until) VALUES (?, ?, ?)"
_MARKED = "SELECT 1 FROM finishing WHERE client = ? AND token = ?"
_EXPIRE = "DELETE FROM finishing WHERE until < ?"
_OWN_DATA = itemgetter(9)
_REMEMBERED = 32  # answers
_REMEMBERED_MESSAGES = 1_000  # in them, but for the last one


class Taken(msgspec.Struct, frozen=True):
    """What a claim took, in the order of delivery; the data of long bundles is still to be read."""

    shard_key: int | None
    rows: tuple[Row, ...]
    now: int
    left: int = 0  # messages of the last slice that stay behind
    stripped: tuple[int, ...] = ()  # slices of groups that somebody else held, behind what is taken

    @property
    def whole(self) -> list[int]:
        """The slices of which nothing stays behind."""
        keys = [row[0] for row in self.rows]
        return keys[:-1] if self.left else keys

    @property
    def is_whole(self) -> bool:
        """True when the data of all is here."""
        return None not in map(_OWN_DATA, self.rows)

    def claimed(self, lease: int, data: Mapping[int, bytes | None] | None = None) -> Claimed:
        """The answer; slices whose data is missing were purged since, and are left out."""
        data = data or {}
        slices = [
            ClaimedSlice(
                Bundle(id_, priority, due, at, sent, body, expires_at, group), first, count, deliveries
            )
            for key, first, count, deliveries, id_, priority, due, at, sent, own, expires_at, group in self.rows
            if (body := data.get(key) if own is None else own) is not None
        ]
        return Claimed(tuple(slices), self.now + lease)


def take(sql: sqlite3.Connection, request: Claim, now: int) -> Taken:
    """Hide up to the limit of deliverable messages, or again what the token holds."""
    taken, held = _find(sql, request, now)
    until = now + request.lease
    if held:
        prolong = _PROLONG_GROUPS if request.shard.is_grouped else _PROLONG
        prolong.run(sql, [row[0] for row in taken.rows], until)
        return taken
    values = (until, request.token, int(not request.started))
    if whole := taken.whole:
        _TAKE.run(sql, whole, *values)
    stripped = list(taken.stripped)
    if taken.left:
        key, _, count, *_ = taken.rows[-1]
        stripped.append(split_off(sql, key, count))
        sql.execute(_TAKE_HEAD, (key, *values, count))
    if stripped and request.shard.is_grouped:
        groups.strip(sql, stripped, now)
    return taken


def _find(sql: sqlite3.Connection, request: Claim, now: int) -> tuple[Taken, bool]:
    """Return what the token holds, or what it may take up to the limit; and which of them it is."""
    shard_key = directory.key_of(sql, request.shard)
    if shard_key is None:
        return Taken(None, (), now), False
    held = sql.execute(SQL_HELD, (shard_key, request.token)).fetchall()
    if held:
        return Taken(shard_key, tuple(held), now), True
    if request.shard.is_grouped:
        rows, wanted, stripped = groups.deliverable(sql, shard_key, now, request.limit)
    else:
        (rows, wanted), stripped = _deliverable(sql, shard_key, now, request.limit), []
    if wanted < 0:
        key, first, count, *rest = rows[-1]
        rows[-1] = (key, first, count + wanted, *rest)  # type: ignore[assignment]
    return Taken(shard_key, tuple(rows), now, max(-wanted, 0), tuple(stripped)), False


def _deliverable(sql: sqlite3.Connection, shard_key: int, now: int, limit: int) -> tuple[list[Row], int]:
    """Return slices until they hold ``limit`` messages, and how many are wanted still: below 0, so many too much."""
    rows: list[Row] = []
    wanted = limit
    cursor = sql.execute(SQL_DELIVERABLE, (shard_key, now))
    for row in cursor:
        rows.append(row)
        wanted -= row[2]
        if wanted <= 0:
            break
    cursor.close()
    return rows, wanted


def read(sql: sqlite3.Connection, request: Claim, taken: Taken) -> Claimed:
    """Return the slices with the data of all; those that were purged since are left out."""
    keys = sql.execute(SQL_READ, (taken.shard_key, request.token)).fetchall()
    return taken.claimed(request.lease, {key: bundles.long_data(sql, data_key) for key, data_key in keys})


class Answers:
    """What the claims of this process finished, for those that are repeated because they were not answered.

    The only answer that SQLite can fail to give is that of a commit. While one is missing no other claim finishes
    anything, as it would write over the mark that tells what became of it. The last few other answers are kept too.
    """

    def __init__(self) -> None:
        self.client = os.urandom(16)
        self._known: OrderedDict[bytes, Claimed] = OrderedDict()
        self._messages = 0  # in them
        self._doubtful: tuple[bytes, Claimed] | None = None

    def known(self, token: bytes, now: int) -> Claimed | None:
        """Return what a claim finished that was answered, or is known to be stored."""
        answer = self._known.get(token)
        return answer if answer is not None and answer.lease_until > now else None

    def may_finish(self, now: int) -> bool:
        """Tell whether a claim may finish anything now."""
        return self._doubtful is None or self._doubtful[1].lease_until <= now

    def doubtful(self, token: bytes) -> Claimed | None:
        """Return what a claim finished if its commit was carried out."""
        return self._doubtful[1] if self._doubtful is not None and self._doubtful[0] == token else None

    def begin(self, token: bytes, answer: Claimed) -> None:
        """The commit is about to be made."""
        self._doubtful = (token, answer)

    def end(self, token: bytes, *, stored: bool) -> None:
        """It is known whether the claim's commit was made, if it finished anything."""
        answer = self.doubtful(token)
        if answer is None:
            return
        self._doubtful = None
        if stored:
            self._known[token] = answer
            self._messages += _messages(answer)
        while len(self._known) > 1 and (
            len(self._known) > _REMEMBERED or self._messages > _REMEMBERED_MESSAGES
        ):
            self._messages -= _messages(self._known.popitem(last=False)[1])


def _messages(answer: Claimed) -> int:
    return sum(piece.count for piece in answer.slices)


def finish(sql: sqlite3.Connection, request: Claim, answers: Answers, now: int) -> Claimed | Taken:
    """Take messages and finish them, if all of them may be finished; else hold them."""
    if answers.doubtful(request.token) is not None:
        marked = sql.execute(_MARKED, (answers.client, request.token)).fetchone()
        answers.end(request.token, stored=marked is not None)
    if (earlier := answers.known(request.token, now)) is not None:
        return earlier
    answer = _answer(sql, request, now) if answers.may_finish(now) else None
    if answer is None:
        return take(sql, request, now)
    sql.execute(_MARK, (answers.client, request.token, answer.lease_until))
    answers.begin(request.token, answer)
    return answer


def _answer(sql: sqlite3.Connection, request: Claim, now: int) -> Claimed | None:
    """Finish what can be taken; None, with nothing finished, if some of it may not be."""
    assert request.finish is not None
    taken, held = _find(sql, request, now)
    data = {row[0]: _data(sql, row[0]) for row in taken.rows if row[9] is None}
    claimed = taken.claimed(request.lease, data)
    is_whole = len(claimed.slices) == len(taken.rows) > 0
    if held or not is_whole or not all(map(request.finish.covers, claimed.slices)):
        return None
    _finish(sql, request, taken)
    finished = tuple(msgspec.structs.replace(each, finished=True) for each in claimed.slices)
    return msgspec.structs.replace(claimed, slices=finished)


def _finish(sql: sqlite3.Connection, request: Claim, taken: Taken) -> None:
    assert request.finish is not None
    key, _, count, *_ = taken.rows[-1]
    if request.finish.keep:
        if taken.left:
            split(sql, key, count)
        _KEEP.run(sql, [row[0] for row in taken.rows], taken.now)
        return
    if taken.whole:
        bundles.delete(sql, request.shard.queue, taken.whole, taken.now)
    if taken.left:
        skip(sql, key, count)


def _data(sql: sqlite3.Connection, slice_key: int) -> bytes | None:
    row = sql.execute(_DATA_KEY, (slice_key,)).fetchone()
    return bundles.long_data(sql, row[0]) if row else None


def expire(sql: sqlite3.Connection, now: int) -> int:
    """Forget the marks of claims whose lease is over; returns how many."""
    return sql.execute(_EXPIRE, (now,)).rowcount
