"""Low watermarks: by priority, a moment before which nothing is due in a shard, so that reads begin there.

Consumed messages leave dead entries in the index, which stay for as long as any transaction on the server may see
them. A client that consumes raises the watermarks, once a second at most. A write of a message that was due before
lowers them in the same transaction. They are hints: a deep probe uses none of them, and lowers those that hide
messages.

Each change inserts a row with a higher key and deletes the former one. So a read finds the current row before dead
ones.

In a shard of groups they are those of turns. A message of a group may be due long before those before it are gone, but
its turn comes with the present.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.postgresql.connections import Row, Sql
from shardq.storage.postgresql.directory import HOME, HOMES
from shardq.storage.postgresql.rows import CHOSEN, HEAD, PIECES, TURN, UNDELIVERED, Piece, keys_of
from shardq.storage.read_cursors import OLDEST, OVERLAP, PRIORITIES, CursorMap
from shardq.storage.requests import Bundle

__all__ = [
    "HAS_ITS_TURN",
    "HOME_READ",
    "LATE",
    "LOW",
    "TOO_LATE",
    "WATERMARKS",
    "LowWatermarks",
    "Read",
    "hidden",
    "late_of",
    "lower",
    "lower_released",
    "raise_to",
    "show",
]

WATERMARKS = """
    LEFT JOIN LATERAL (
        SELECT w.low, w.late, w.step FROM @watermark w WHERE w.shard_key = {0}.shard_key
        ORDER BY w.late DESC, w.step DESC LIMIT 1
    ) AS m ON true
"""
"""Joins the watermarks of the shard ``{0}`` as ``m``."""

HOME_READ = HOME.replace("s.queue_key FROM", "s.queue_key, m.low, m.late, m.step FROM").replace(
    "WHERE", f"{WATERMARKS.format('s')} WHERE"
)
"""The keys of a shard with its watermarks."""

_OF_PRIORITY = "{0}.low[p.priority + 1]"
LOW = f"CASE WHEN {_OF_PRIORITY} <= {{1}} THEN {_OF_PRIORITY} ELSE {OLDEST} END"
"""From where a priority is read; ``{0}`` has the watermarks, ``{1}`` is now: the clock may have been set back."""

HAS_ITS_TURN = f"{HEAD} AND {TURN} >= {LOW} AND {TURN} <= {{1}}"
"""Whether the first slice of a group is due and its turn has come, with the same values."""

LATE = OVERLAP // 2
"""Microseconds after it is due in which a bundle is stored, or whoever stores it lowers them."""

TOO_LATE = 2_000_000
"""A client that has stored it as if it were not late lowers them after this time."""

_GUARD = TOO_LATE + LATE  # microseconds that the watermarks stay behind
_RAISE = 1_000_000  # they are raised in such steps
_NONE = 2**62

# Replaces the row that was read. If another transaction has replaced or locked it, changes nothing.
_RAISE_TO = """
    WITH former AS (
        DELETE FROM @watermark w USING (
            SELECT shard_key, late, step FROM @watermark WHERE shard_key = $1 AND late = $2 AND step = $3
            FOR UPDATE SKIP LOCKED
        ) AS a
        WHERE w.shard_key = a.shard_key AND w.late = a.late AND w.step = a.step
        RETURNING w.shard_key, w.late, w.step
    )
    INSERT INTO @watermark (shard_key, late, step, low) SELECT shard_key, late, step + 1, $4::bigint[] FROM former
    WHERE set_config('synchronous_commit', 'off', true) = 'off'
"""
# Changes nothing if another transaction has replaced the last row meanwhile. The caller repeats it.
_LOWER = """
    WITH former AS (
        DELETE FROM @watermark w USING (
            SELECT shard_key, late, step FROM @watermark WHERE shard_key = $1 ORDER BY late DESC, step DESC LIMIT 1
        ) AS a
        WHERE w.shard_key = a.shard_key AND w.late = a.late AND w.step = a.step
        RETURNING w.shard_key, w.late, w.low
    )
    INSERT INTO @watermark (shard_key, late, step, low)
    SELECT shard_key, late + 1, 0, CASE WHEN low IS NOT NULL THEN ARRAY(
        SELECT least(l, m) FROM unnest(low, $2::bigint[]) WITH ORDINALITY AS u (l, m, n) ORDER BY n
    ) END FROM former
"""
_IS_THERE = "SELECT FROM @watermark WHERE shard_key = $1 ORDER BY late DESC, step DESC LIMIT 1"
_IS_AHEAD = f"{HEAD} AND {TURN} > {{0}} AND s.due <= {{0}}"
_RELEASED = f"""
    SELECT s.priority, min(s.sent_due) FROM {PIECES} JOIN @slice s ON {CHOSEN}
    WHERE s.sent_due < $4 AND {UNDELIVERED} GROUP BY s.priority
"""
_HIDDEN = f"""
    SELECT h.shard_key, p.priority, x.due FROM {HOMES} {WATERMARKS.format("h")}
    CROSS JOIN generate_series(0, 9) AS p (priority) CROSS JOIN LATERAL (
        (
            SELECT s.due FROM @slice s
            WHERE s.shard_key = h.shard_key AND s.priority = p.priority AND s.due < m.low[p.priority + 1]
            AND s.processed_at IS NULL AND h.time_shard <> {GROUP_TIME_SHARD}
            ORDER BY s.due LIMIT 1
        ) UNION ALL (
            SELECT {TURN} FROM @slice s
            WHERE s.shard_key = h.shard_key AND s.priority = p.priority AND {TURN} < m.low[p.priority + 1]
            AND {HEAD} AND h.time_shard = {GROUP_TIME_SHARD}
            ORDER BY {TURN} LIMIT 1
        ) UNION ALL (
            SELECT s.due FROM @slice s
            WHERE s.shard_key = h.shard_key AND s.priority = p.priority AND {_IS_AHEAD.format("$4")}
            AND h.time_shard = {GROUP_TIME_SHARD}
            LIMIT 1
        )
    ) AS x
"""
# Turns that came while the clock was ahead. Slices that others have locked are changed by them.
_TURN_BACK = f"""
    UPDATE @slice s SET turn = $2 - {LATE} FROM (
        SELECT x.* FROM unnest($1::bigint[]) AS h (shard_key) CROSS JOIN generate_series(0, 9) AS p (priority)
        CROSS JOIN LATERAL (
            SELECT s.shard_key, s.bundle_id, s.first FROM @slice s
            WHERE s.shard_key = h.shard_key AND s.priority = p.priority AND {_IS_AHEAD.format("$2")}
            FOR UPDATE OF s SKIP LOCKED
        ) AS x
    ) AS a
    WHERE {CHOSEN}
"""


class Read(msgspec.Struct, frozen=True, gc=False):
    """A claim's read of a shard: its watermarks, and which transactions had ended."""

    shard_key: int
    low: Sequence[int] | None
    late: int
    step: int
    oldest: int  # transaction that had not ended
    newest: int  # the next one to begin
    now: int
    taken: Row | None = None
    """Priority and due time of the last slice that was taken, or the first turn; None: nothing else was due."""


class _Seen(msgspec.Struct, frozen=True, gc=False):
    shard_key: int
    late: int
    newest: int
    moment: int


class LowWatermarks:
    """The knowledge of this client about the shards in which it claims."""

    def __init__(self) -> None:
        self._seen = CursorMap[Shard, _Seen]()

    def raised(self, shard: Shard, read: Read) -> list[int] | None:
        """Return watermarks that spare others something; None if that is not known, or not worth it.

        A read sees all writes before a moment when all transactions of that moment have ended. So a message that such
        a read does not find, and that was due before the moment, does not exist. Messages that are stored later are
        due later, or late.
        """
        seen = self._seen.get(shard)
        if (
            seen is None
            or seen.moment > read.now
            or (seen.shard_key, seen.late) != (read.shard_key, read.late)
        ):
            self._note(shard, read)
            return None
        if read.oldest < seen.newest or read.now < seen.moment + _GUARD + _RAISE:
            return None
        self._note(shard, read)
        known = [low if low <= read.now else OLDEST for low in read.low or [OLDEST] * len(PRIORITIES)]
        reached = [max(low, min(place, seen.moment)) for low, place in zip(known, _places(read), strict=True)]
        steps = [new - old for new, old in zip(reached, known, strict=True)]
        return reached if max(steps) >= _RAISE else None

    def _note(self, shard: Shard, read: Read) -> None:
        self._seen.replace(shard, _Seen(read.shard_key, read.late, read.newest, read.now - _GUARD))


def _places(read: Read) -> list[int]:
    """Return by priority up to where nothing is due that was not taken."""
    if read.taken is None:
        return [read.now] * len(PRIORITIES)
    last, due = read.taken
    return [read.now if each < last else due if each == last else OLDEST for each in PRIORITIES]


def raise_to(sql: Sql, read: Read, moments: list[int], _now: int) -> None:
    """Raise the watermarks unless something came late since they were read, or somebody changes them just then."""
    sql.run(_RAISE_TO, read.shard_key, read.late, read.step, moments)


def late_of(bundles: Iterable[Bundle], now: int, late_by: int = LATE) -> dict[int, int]:
    """Return by priority the first due time of bundles that are stored late."""
    late: dict[int, int] = {}
    for bundle in bundles:
        if bundle.due < now - late_by:
            late[bundle.priority] = min(bundle.due, late.get(bundle.priority, bundle.due))
    return late


def lower(sql: Sql, shard_key: int, moments: Mapping[int, int]) -> None:
    """Let all clients read from these moments on, by priority.

    In a transaction of the application they are lowered before its end: they are not raised until then.
    """
    if moments and sql.outside is not None:
        sql.outside.write(_lower, shard_key, moments, durable=False)
    elif moments:
        lowest = [moments.get(priority, _NONE) for priority in PRIORITIES]
        while not sql.run(_LOWER, shard_key, lowest) and sql.one(_IS_THERE, shard_key) is not None:
            pass  # another transaction has replaced the row; of a dropped shard there is none


def _lower(sql: Sql, shard_key: int, moments: Mapping[int, int], _now: int) -> None:
    lower(sql, shard_key, moments)


def lower_released(sql: Sql, shard_key: int, pieces: Sequence[Piece], now: int) -> None:
    """Let all clients read slices that are about to be released to their old places."""
    if pieces:
        lower(sql, shard_key, dict(sql.all(_RELEASED, shard_key, *keys_of(pieces), now - LATE)))


def hidden(sql: Sql, shards: Sequence[Shard], now: int) -> dict[int, dict[int, int]]:
    """Return what watermarks or turns of these shards hide: by their keys and by priority the first due time."""
    if not shards:
        return {}
    columns = zip(*((each.queue, each.time_shard, each.number) for each in shards), strict=True)
    found: dict[int, dict[int, int]] = {}
    for shard_key, priority, due in sql.all(_HIDDEN, *map(list, columns), now):
        of_shard = found.setdefault(shard_key, {})
        of_shard[priority] = min(due, of_shard.get(priority, due))
    return found


def show(sql: Sql, found: Mapping[int, Mapping[int, int]], _now: int) -> None:
    """Lower watermarks that hide something, and let groups have their turns whose turns are ahead of the clock."""
    for shard_key in sorted(found):
        lower(sql, shard_key, found[shard_key])
    sql.run(_TURN_BACK, sorted(found), sql.now())
