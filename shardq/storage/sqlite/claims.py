"""Taking slices under a claim's token, or finishing them in the same step."""

from __future__ import annotations

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType

import msgspec

from shardq.base.shard import GROUP_TIME_SHARD
from shardq.storage.requests import Bundle, Claim, Claimed, ClaimedSlice
from shardq.storage.sqlite import bundles, directory, groups
from shardq.storage.sqlite.bundles import BLOCKS, BUNDLE, STILL_BEHIND, Change
from shardq.storage.sqlite.groups import Row
from shardq.storage.sqlite.slicing import skip, split, split_off

__all__ = ["Answers", "Taken", "expire", "finish", "read", "take"]

SQL_HELD = f"""
    SELECT slice_key, first, count, deliveries + unstarted, {BUNDLE} FROM [slice] INDEXED BY [slice_by_token]
    WHERE shard_key = ? AND token = ? AND NOT {BLOCKS} ORDER BY place, priority, sent_due, bundle_id, first
"""
SQL_DELIVERABLE = f"""
    SELECT slice_key, first, count, deliveries + 1, {BUNDLE} FROM [slice] INDEXED BY [slice_by_due]
    WHERE shard_key = ? AND priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due <= ? AND processed_at IS NULL
    ORDER BY priority, due, bundle_id, first
"""
_PROLONG = Change(f"UPDATE [slice] SET due = ?2 + {STILL_BEHIND} WHERE {{0}}")
_TAKE = Change(f"""
    UPDATE [slice] SET due = ?2 + {STILL_BEHIND}, token = ?3, deliveries = deliveries + 1 - ?4, unstarted = ?4
    WHERE {{0}}
""")
_TAKE_HEAD = f"""
    UPDATE [slice]
    SET count = ?5, due = ?2 + {STILL_BEHIND}, token = ?3, deliveries = deliveries + 1 - ?4, unstarted = ?4
    WHERE slice_key = ?1
"""
SQL_READ = """
    SELECT slice_key, data_key
    FROM [slice] INDEXED BY [slice_by_token] JOIN [bundle_data] USING (data_key) WHERE shard_key = ? AND token = ?
"""


_DATA_KEY = "SELECT data_key FROM [slice] JOIN [bundle_data] USING (data_key) WHERE slice_key = ?"
_KEEP = Change("""
    UPDATE [slice] SET processed_at = ?2, token = NULL, deliveries = deliveries + 1, unstarted = 0 WHERE {0}
""")
_MARK = "INSERT OR REPLACE INTO [finishing] (client, token, until) VALUES (?, ?, ?)"
_MARKED = "SELECT 1 FROM [finishing] WHERE client = ? AND token = ?"
_EXPIRE = "DELETE FROM [finishing] WHERE until < ?"
_KEY, _OWN_DATA = itemgetter(0), itemgetter(9)
_NO_DATA: Mapping[int, bytes | None] = MappingProxyType({})
_REMEMBERED = 32  # answers
_REMEMBERED_MESSAGES = 1_000  # in them, but for the last one


class Taken(msgspec.Struct, frozen=True):
    """The slices that a claim takes, in the order of delivery; the data of long bundles is still to be read."""

    shard_key: int | None
    rows: tuple[Row, ...]
    now: int
    left: int = 0  # messages of the last slice that stay behind
    stripped: tuple[int, ...] = ()  # slices of groups that somebody else held, behind what is taken
    held: bool = False  # the token holds it by now: the claim is repeated

    @property
    def is_whole(self) -> bool:
        """True when the data of all is here."""
        return None not in map(_OWN_DATA, self.rows)

    def whole(self) -> list[int]:
        """Return the slices of which nothing stays behind."""
        keys = list(map(_KEY, self.rows))
        return keys[:-1] if self.left else keys

    def claimed(
        self, lease: int, data: Mapping[int, bytes | None] = _NO_DATA, *, finished: bool = False
    ) -> Claimed:
        """Make the answer; slices whose data is missing were purged since, and are left out."""
        slices = [
            ClaimedSlice(
                Bundle(id_, priority, due, at, sent, body, expires_at, group),
                first,
                count,
                deliveries,
                finished,
            )
            for key, first, count, deliveries, id_, priority, due, at, sent, own, expires_at, group in self.rows
            if (body := data.get(key) if own is None else own) is not None
        ]
        return Claimed(tuple(slices), self.now + lease)


def take(sql: sqlite3.Connection, request: Claim, now: int, found: Taken | None = None) -> Taken:
    """Hide up to the limit of deliverable messages, or again those that the token holds."""
    taken = found or _find(sql, request, now)
    until = now + request.lease
    if taken.held:
        _PROLONG.run(sql, [row[0] for row in taken.rows], until)
        return taken
    values = (until, request.token, int(not request.started))
    if whole := taken.whole():
        _TAKE.run(sql, whole, *values)
    stripped = taken.stripped
    if taken.left:
        key, _, count, *_ = taken.rows[-1]
        stripped = (*stripped, split_off(sql, key, count))
        sql.execute(_TAKE_HEAD, (key, *values, count))
    if stripped and request.shard.time_shard == GROUP_TIME_SHARD:
        groups.strip(sql, stripped, now)
    return taken


def _find(sql: sqlite3.Connection, request: Claim, now: int) -> Taken:
    """Return what the token holds, or else what it may take: slices until they hold the limit of messages."""
    shard_key = directory.key_of(sql, request.shard)
    if shard_key is None:
        return Taken(None, (), now)
    rows = sql.execute(SQL_HELD, (shard_key, request.token)).fetchall()
    if rows:
        return Taken(shard_key, tuple(rows), now, held=True)
    wanted = request.limit
    stripped: Sequence[int] = ()
    if request.shard.time_shard == GROUP_TIME_SHARD:
        rows, wanted, stripped = groups.deliverable(sql, shard_key, now, wanted)
    else:
        cursor = sql.execute(SQL_DELIVERABLE, (shard_key, now))
        for row in cursor:
            rows.append(row)
            wanted -= row[2]
            if wanted <= 0:
                break
        cursor.close()
    if wanted < 0:  # this number of the last one stay
        key, first, count, *rest = rows[-1]
        rows[-1] = (key, first, count + wanted, *rest)
    return Taken(shard_key, tuple(rows), now, max(-wanted, 0), tuple(stripped))


def read(sql: sqlite3.Connection, request: Claim, taken: Taken) -> Claimed:
    """Return the slices with the data of all; those that were purged since are left out."""
    keys = sql.execute(SQL_READ, (taken.shard_key, request.token)).fetchall()
    return taken.claimed(request.lease, {key: bundles.long_data(sql, data_key) for key, data_key in keys})


class Answers:
    """The messages that the claims of this process finished, for repeated claims that were not answered.

    The only answer that SQLite can fail to give is that of a commit. While one is missing no other claim finishes
    anything, as it would write over the mark that shows its result. The last few other answers are kept too.
    """

    def __init__(self) -> None:
        self.client = os.urandom(16)
        self._known: OrderedDict[bytes, Claimed] = OrderedDict()
        self._messages = 0  # in them
        self.doubtful: tuple[bytes, Claimed] | None = None
        """The claim whose commit was not answered, and what it finished if that was made."""

    def known(self, token: bytes, now: int) -> Claimed | None:
        """Return what a claim finished that was answered, or is known to be stored."""
        answer = self._known.get(token)
        return answer if answer is not None and answer.lease_until > now else None

    def begin(self, token: bytes, answer: Claimed) -> None:
        """Note that the commit is about to be made."""
        self.doubtful = (token, answer)

    def end(self, token: bytes, *, stored: bool) -> None:
        """Note whether the claim's commit was made, if it finished anything."""
        if self.doubtful is None or self.doubtful[0] != token:
            return
        answer, self.doubtful = self.doubtful[1], None
        if stored:
            self._known[token] = answer
            self._messages += _messages(answer)
        while len(self._known) > 1 and (
            len(self._known) > _REMEMBERED or self._messages > _REMEMBERED_MESSAGES
        ):
            self._messages -= _messages(self._known.popitem(last=False)[1])


def _messages(answer: Claimed) -> int:
    return sum([piece.count for piece in answer.slices])


def finish(sql: sqlite3.Connection, request: Claim, answers: Answers, now: int) -> Claimed | Taken:
    """Take messages and finish them, if all of them may be finished; else hold them."""
    assert request.finish is not None
    doubtful = answers.doubtful
    if doubtful is not None and doubtful[0] == request.token:
        marked = sql.execute(_MARKED, (answers.client, request.token)).fetchone()
        answers.end(request.token, stored=marked is not None)
        doubtful = None
    if (earlier := answers.known(request.token, now)) is not None:
        return earlier
    found = _find(sql, request, now)
    if not found.rows or found.held or (doubtful is not None and doubtful[1].lease_until > now):
        return take(sql, request, now, found)
    data = {row[0]: _data(sql, row[0]) for row in found.rows if row[9] is None}
    answer = found.claimed(request.lease, data, finished=True)
    if len(answer.slices) < len(found.rows) or not all(map(request.finish.covers, answer.slices)):
        return take(sql, request, now, found)
    _finish(sql, request, found)
    sql.execute(_MARK, (answers.client, request.token, answer.lease_until))
    answers.begin(request.token, answer)
    return answer


def _finish(sql: sqlite3.Connection, request: Claim, taken: Taken) -> None:
    assert request.finish is not None
    key, _, count, *_ = taken.rows[-1]
    if request.finish.keep:
        if taken.left:
            split(sql, key, count)
        _KEEP.run(sql, [row[0] for row in taken.rows], taken.now)
        return
    if whole := taken.whole():
        bundles.delete(sql, request.shard.queue, whole, taken.now)
    if taken.left:
        skip(sql, key, count)


def _data(sql: sqlite3.Connection, slice_key: int) -> bytes | None:
    row = sql.execute(_DATA_KEY, (slice_key,)).fetchone()
    return bundles.long_data(sql, row[0]) if row else None


def expire(sql: sqlite3.Connection, now: int) -> int:
    """Forget the marks of claims whose lease has expired; returns how many."""
    return sql.execute(_EXPIRE, (now,)).rowcount
