"""A change of one wide row: all of it happens or nothing, and only if what it was made from is still the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shardq.base.log import Log
from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, ShardqError
from shardq.storage import writing
from shardq.storage.bundles import decode_keys
from shardq.storage.cassandra import read_cursors
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import BUNDLE as BUNDLE_KIND
from shardq.storage.cassandra.rows import (
    CONTROL,
    MOVE,
    Control,
    CursorPosition,
    Head,
    Key,
    Ready,
    Slice,
    Tally,
    encode,
)
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.cassandra.shard_rows import WideRow

__all__ = ["CONTROL_KEY", "Change", "attempts", "bundle_key", "lower"]

_log = Log(__name__)

CQL_AT = "WHERE shard = ? AND kind = ? AND priority = ? AND due = ? AND id = ? AND first = ?"
CQL_INSERT = "INSERT INTO entry (shard, kind, priority, due, id, first, value) VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_CARRYING = (
    "INSERT INTO entry (shard, kind, priority, due, id, first, value, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_MOVE = f"{CQL_INSERT} USING TTL ?"
# Without a condition: its row may be there, where an append was repeated with other data. The lease row is compared.
_INSERT_TALLIED = (
    "INSERT INTO entry (shard, kind, priority, due, id, first, value, tally, data) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
CQL_INSERT_BUNDLE = f"{_INSERT_CARRYING} IF NOT EXISTS"
_STORE_GROUPED = f"UPDATE entry SET value = ?, data = ? {CQL_AT} IF value = null"
# Without a row marker, so that the row ends with its last value.
_FINISH = f"UPDATE entry USING TTL ? SET value = 0x, tally = null, data = null {CQL_AT}"
_FINISH_TALLIED = f"{_FINISH} IF value = ? AND tally = ?"
_MARK_TAKEN = f"UPDATE entry SET taken = ? {CQL_AT}"
CQL_REPLACE = f"UPDATE entry SET value = ? {CQL_AT} IF value = ?"
CQL_REPLACE_CARRYING = f"UPDATE entry SET value = ?, data = ? {CQL_AT} IF value = ?"
CQL_REPLACE_TALLY = f"UPDATE entry SET tally = ? {CQL_AT} IF value = ? AND tally = ?"
CQL_TURN = f"UPDATE entry SET turn = ? {CQL_AT}"
CQL_EXPECT = f"UPDATE entry SET turn = ? {CQL_AT} IF value = ?"
CQL_TAKE = f"UPDATE entry SET taken = ? {CQL_AT} IF taken = ?"
CQL_READ_TURN = f"SELECT turn FROM entry {CQL_AT}"
_READ_TAKEN = f"SELECT taken FROM entry {CQL_AT}"
_READ_VALUE = f"SELECT value FROM entry {CQL_AT}"
CQL_DELETE = f"DELETE FROM entry {CQL_AT}"
CQL_DELETE_SEEN = f"DELETE FROM entry {CQL_AT} IF value = ?"
CQL_DELETE_TALLIED = f"DELETE FROM entry {CQL_AT} IF value = ? AND tally = ?"

CONTROL_KEY = Key(CONTROL, 0, 0, b"", 0)
# Seconds for which moves and finished bundles are known: a minute more than what is promised.
_KNOWN = 16 * 60
_PAUSES = tuple(min(0.05, 0.001 * 2**attempt) for attempt in range(24))  # seconds between attempts


def bundle_key(bundle_id: bytes) -> Key:
    """Return the key under which a bundle is stored."""
    return Key(BUNDLE_KIND, 0, 0, bundle_id, 0)


class Change:
    """Collects what is to be done; :meth:`apply` does it as one conditional batch."""

    def __init__(self, session: Session, shard: Shard) -> None:
        self._session, self._shard, self._grouped = session, str(shard), shard.is_grouped
        self.leases: list[LeaseRow] = []  # those that it writes
        self._retired: dict[Key, bytes] = {}
        self._carried: dict[Key, bytes] = {}
        self._written: dict[Key, bytes] = {}
        self._guarded: set[Key] = set()
        self._taken: tuple[bytes | None] | None = None  # what has to be seen of it, if ready rows are taken
        self._deleted: set[Key] = set()
        self._others: list[Statement] = []
        # Its write time tells the next reader a moment that every later conditional write comes after.
        self._turn: Statement = (CQL_TURN, (os.urandom(8), self._shard, *CONTROL_KEY))

    def take(self, ready: Iterable[Ready], seen: bytes | None) -> bytes:
        """Delete ready rows that were read after ``taken`` was seen, if it is as it was; returns its new value.

        One condition for all of them: nothing but a change that sets ``taken`` takes ready rows away.
        """
        for each in ready:
            self._deleted.add(each.key)
            if _may_be_stored_twice(each):
                self._deleted.add(bundle_key(each.key.id))
        self._taken = (seen,)
        taken = os.urandom(8)
        self._others.append((CQL_TAKE, (taken, self._shard, *CONTROL_KEY, seen)))
        return taken

    def offer(self, ready: Ready) -> None:
        """Write a ready row: what is left of one that was taken."""
        self._written[ready.key] = ready.value

    def replace(self, key: Key, value: bytes | None, seen: bytes | None) -> None:
        """Write a row, or delete it, if it is as it was seen; None: it is not there."""
        if seen is not None:
            self._retired[key] = seen
        if value is not None:
            self._written[key] = value
            self._guarded.add(key)

    def hold(self, lease: LeaseRow, carried: Mapping[bytes, bytes] | None = None) -> None:
        """Write a lease row with its due row; its place is free, or retired by this change.

        ``carried`` has the data of its inline bundles; without it, its row carries what it carried before.
        """
        self.leases.append(lease)
        self._written[lease.key] = lease.value
        if carried:
            self._carried[lease.key] = encode(carried)
        self._guarded.add(lease.key)
        self._written[lease.due_row] = b""

    def retire(self, lease: LeaseRow) -> None:
        """Delete a lease row with its due row if it is as it was seen."""
        assert lease.seen is not None
        self._retired[lease.key] = lease.seen
        self._deleted.add(lease.due_row)

    def write(self, key: Key, value: bytes, data: bytes | None = None) -> None:
        """Write a row of another kind; without ``data`` it carries what it carried before."""
        self._written[key] = value
        if data is not None:
            self._carried[key] = data

    def move(self, slices: Iterable[Slice]) -> None:
        """Note that the messages are stored elsewhere now."""
        for each in slices:
            key = Key(MOVE, 0, 0, each.bundle_id, each.first)
            self._others.append((_INSERT_MOVE, (self._shard, *key, encode(each.count), _KNOWN)))

    def delete(self, key: Key) -> None:
        """Delete a row with any content."""
        self._deleted.add(key)

    def delete_seen(self, key: Key, seen: bytes) -> None:
        """Delete a row if it is as it was seen."""
        self._retired[key] = seen

    def store(self, bundle_id: bytes, head: Head, data: bytes) -> None:
        """Write a bundle if there is none with its id."""
        self._others.append((CQL_INSERT_BUNDLE, (self._shard, *bundle_key(bundle_id), encode(head), data)))

    def store_grouped(self, bundle_id: bytes, head: Head, data: bytes) -> None:
        """Write a bundle of a group unless one with its id is stored, or was finished a short time ago."""
        self._others.append((_STORE_GROUPED, (encode(head), data, self._shard, *bundle_key(bundle_id))))

    def drop_bundle(self, bundle_id: bytes) -> None:
        """Delete a bundle, all of which is finished; that of one with a group is known for a while."""
        if self._grouped:
            self._others.append((_FINISH, (_KNOWN, self._shard, *bundle_key(bundle_id))))
        else:
            self.delete(bundle_key(bundle_id))

    def mark_taken(self) -> None:
        """Note that rows were taken out of the shard's indexes, for those who raise low watermarks."""
        self._others.append((_MARK_TAKEN, (os.urandom(8), self._shard, *CONTROL_KEY)))

    def store_finished(self, bundle_id: bytes, head: Head, tally: Tally, data: bytes) -> None:
        """Give an inline bundle that a lease row holds a separate row, with what is finished of it."""
        values = (self._shard, *bundle_key(bundle_id), encode(head), encode(tally), data)
        self._others.append((_INSERT_TALLIED, values))

    def tally(self, bundle_id: bytes, head: bytes, seen: bytes | None, tally: Tally) -> None:
        """Write what is finished of a bundle, or delete the bundle when nothing is left of it."""
        place = (self._shard, *bundle_key(bundle_id))
        if tally.left or tally.kept:
            self._others.append((CQL_REPLACE_TALLY, (encode(tally), *place, head, seen)))
        elif self._grouped:
            self._others.append((_FINISH_TALLIED, (_KNOWN, *place, head, seen)))
        else:
            self._others.append((CQL_DELETE_TALLIED, (*place, head, seen)))

    def set_control(self, control: Control, seen: bytes | None) -> None:
        """Write the control row if it is as it was seen."""
        self._others.append((CQL_REPLACE, (encode(control), self._shard, *CONTROL_KEY, seen)))

    def expect_control(self, seen: bytes | None) -> None:
        """Let nothing happen unless the control row is as it was seen."""
        self._turn = (CQL_EXPECT, (os.urandom(8), self._shard, *CONTROL_KEY, seen))

    def apply(self) -> bool:
        """Do everything; False, and nothing changed, when something is no longer as it was seen.

        Where the cluster does not say which, it is read back. Raises OutcomeUnknown when that does not show it either.
        """
        try:
            return self._session.apply(list(self._statements()))
        except OutcomeUnknown:
            applied = self._read_back()
            if applied is None:
                raise
            return applied

    def _read_back(self) -> bool | None:
        """Return whether it was applied; None: others have changed the row since, or it cannot be read.

        The read is a serial one, so what is still on its way has happened before it, or never will.
        """
        try:
            if self._column(CQL_READ_TURN, CONTROL_KEY) == self._turn[1][0]:
                return True
            if self._taken is not None:
                return False if self._column(_READ_TAKEN, CONTROL_KEY) == self._taken[0] else None
            for key, seen in self._retired.items():
                return False if self._column(_READ_VALUE, key) == seen else None
        except ShardqError:
            return None
        return None

    def _column(self, query: str, key: Key) -> Any:
        rows = self._session.read_serial(query, (self._shard, *key))
        return rows[0][0] if rows else None

    def _statements(self) -> Iterator[Statement]:
        shard = self._shard
        for key, seen in self._retired.items():
            if key not in self._written:
                yield CQL_DELETE_SEEN, (shard, *key, seen)
        for key, value in self._written.items():
            if key in self._retired or key in self._guarded:
                yield self._replace(key, value)
            elif key in self._carried:
                yield _INSERT_CARRYING, (shard, *key, value, self._carried[key])
            else:
                yield CQL_INSERT, (shard, *key, value)
        for key in self._deleted - self._written.keys():
            yield CQL_DELETE, (shard, *key)
        yield from self._others
        yield self._turn

    def _replace(self, key: Key, value: bytes) -> Statement:
        seen = self._retired.get(key)
        if key in self._carried:
            return CQL_REPLACE_CARRYING, (value, self._carried[key], self._shard, *key, seen)
        return CQL_REPLACE, (value, self._shard, *key, seen)


def _may_be_stored_twice(ready: Ready) -> bool:
    """Return whether an inline message may be in a separate bundle, too: it has a key, and was sent again.

    Without a key that shows only where the row has the size of other data. The caller has broken a rule of the port.
    """
    if ready.data is None:
        return False
    keys = decode_keys(ready.data)
    if keys is not None and not (keys.dedupe_keys is None and keys.move_key is None):
        return True
    is_other = ready.size not in (0, len(ready.data))
    if is_other:
        _log.error(
            "bundle %s was appended again with other data, %d bytes in place of %d: one of them is delivered",
            ready.key.id.hex(), ready.size, len(ready.data),
        )  # fmt: skip
    return is_other


def attempts(shard: Shard) -> Iterator[int]:
    """Count the attempts at a change that others may get ahead of; raises StoreUnavailable after 25 of them."""
    return writing.attempts(shard, _PAUSES)


def lower(
    session: Session, shard: Shard, hidden: Mapping[int, CursorPosition], due: int | None = None
) -> None:
    """Lower the low watermarks to these places by priority, that of the due index to this moment. StoreUnavailable."""
    row = WideRow(session, str(shard))
    for _ in attempts(shard):
        seen = row.control()
        change = Change(session, shard)
        change.set_control(read_cursors.lowered(seen.control, hidden, due), seen.seen)
        if change.apply():
            return
