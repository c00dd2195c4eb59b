"""Defects of the PostgreSQL store, each in one place: histories of stepped clients, or other tests, find them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

from shardq.storage.postgresql import (
    bundles,
    claims,
    dedupe,
    directory,
    faults,
    groups,
    read_cursors,
    settling,
    slicing,
)

__all__ = ["MUTATIONS"]

Defect = AbstractContextManager[Any]


def _without(module: Any, name: str, words: str, others: str = "") -> Defect:
    """A statement, or a function, that lacks some of its words, or has others in their place."""
    found = getattr(module, name)
    text = found if isinstance(found, str) else inspect.getsource(found)
    assert words in text, f"{name} has no {words!r}"
    text = text.replace(words, others)
    if isinstance(found, str):
        return patch.object(module, name, text)
    made = dict(vars(module))
    exec(compile(text, module.__file__, "exec"), made)
    return patch.object(module, name, made[name])


def _nothing(module: Any, name: str, result: object = None) -> Defect:
    """A function that does nothing."""
    assert callable(getattr(module, name))
    return patch.object(module, name, lambda *_, **__: result)


def _all(*defects: Defect) -> Defect:
    stack = ExitStack()
    for each in defects:
        stack.enter_context(each)
    return stack


_ANY_TOKEN = "AND ($6::uuid IS NULL OR true)"
MUTATIONS: dict[str, Callable[[], Defect]] = {
    "an ack does not compare the token": lambda: _all(
        _without(settling, "_DELETE_ONE", "AND s.token IS NOT DISTINCT FROM $6", _ANY_TOKEN),
        _without(settling, "_DELETE_WHOLE", "AND s.token IS NOT DISTINCT FROM a.token"),
    ),
    "an ack of a part does not compare the token": lambda: patch.object(
        slicing.Piece, "is_held", lambda piece, _, __: piece.token is not None
    ),
    "a claim does not look again at what it locks": lambda: _without(
        claims,
        "_CLAIM",
        "WHERE s.due = w.due AND s.count = w.count AND s.processed_at IS NULL FOR UPDATE",
        "FOR UPDATE",
    ),
    "a claim takes a part of what it wanted": lambda: _without(
        claims, "_CLAIM", "WHERE (SELECT count(*) FROM locked) = (SELECT count(*) FROM wanted)"
    ),
    "a claim waits for locked rows": lambda: _all(
        _without(claims, "_CLAIM", "FOR UPDATE OF s SKIP LOCKED", "FOR UPDATE OF s"),
        _without(claims, "_TAKE", "FOR UPDATE OF s SKIP LOCKED", "FOR UPDATE OF s"),
    ),
    "a claim that waits its turn does not keep others out": lambda: _nothing(claims, "lock_claims"),
    "a claim does not see what its token holds": lambda: _all(
        _without(claims, "_CLAIM", "AND NOT EXISTS (SELECT FROM held)"),
        _without(claims, "_CLAIM", "AND s.token = $5 AND", "AND s.token = $5 AND false AND"),
        _without(claims, "_PROLONG", "WHERE s.token = $2", "WHERE s.token = $2 AND false"),
    ),
    "removals of parts do not lock their bundle": lambda: _nothing(bundles, "lock"),
    "locked slices are read once": lambda: _without(
        slicing,
        "_covering",
        "while True:\n        rows",
        "while True:\n        return sql.all(_COVERING, *where)\n        rows",
    ),
    "the first append reads no finished ids": lambda: _all(
        *(
            _without(bundles, name, "AND f.first < 0 LIMIT 1", "AND f.first < 0 AND false LIMIT 1")
            for name in ("_APPEND_SHORT", "_APPEND_LONG", "_APPEND_FRESH")
        )
    ),
    "a repeated append reads no finished ids": lambda: _all(
        _without(bundles, "_APPEND_NEW", "AND f.first < 0 LIMIT 1", "AND f.first < 0 AND false LIMIT 1"),
        _nothing(bundles, "_take_back"),
    ),
    "a repeated append takes nothing back": lambda: _nothing(bundles, "_take_back"),
    "an ack remembers no id": lambda: _all(
        _without(
            settling, "_DELETE_ONE", "gone.bundle_id FROM gone)", "gone.bundle_id FROM gone WHERE false)"
        ),
        _without(
            settling,
            "_DELETE_WHOLE",
            "gone.bundle_id FROM home, gone",
            "gone.bundle_id FROM home, gone WHERE false",
        ),
        _without(bundles, "_REMEMBER", "AS id", "AS id WHERE false"),
    ),
    "an ack leaves the data": lambda: _all(
        _without(settling, "_DELETE_ONE", "WHERE gone.is_long", "WHERE NOT gone.is_long"),
        _without(settling, "_DELETE_WHOLE", "WHERE gone.is_long", "WHERE NOT gone.is_long"),
    ),
    "a move is made though a message is lost": lambda: _without(
        settling, "forward", "if home is None or held.fenced != Fenced():", "if home is None:"
    ),
    "an append does not hold its shard": lambda: _all(
        _without(directory, "_PIN", "FOR KEY SHARE OF s"),
        *(_without(bundles, name, "FOR KEY SHARE OF s") for name in ("_APPEND_NEW",)),
        *(
            _without(bundles, name, "FOR KEY SHARE OF s SKIP LOCKED")
            for name in ("_APPEND_SHORT", "_APPEND_LONG", "_APPEND_FRESH")
        ),
    ),
    "a release keeps the token": lambda: patch.object(
        settling,
        "_GIVE_BACK",
        settling.Change("due = $4, deliveries = s.deliveries + s.unstarted::int, unstarted = false"),
    ),
    "changes of groups do not lock them": lambda: _all(
        _nothing(settling, "lock"),
        _nothing(bundles, "lock"),
        patch.object(groups, "try_lock", lambda _, __, names: names),
        _nothing(groups, "try_lock_shard", True),
        _nothing(claims, "lock_claims"),
    ),
    "an ack lets the second of a group go before the first is gone": lambda: _without(
        groups,
        "_ARM",
        "AND s.processed_at IS NULL\n",
        f"AND s.processed_at IS NULL AND s.due >= {groups.BEHIND}\n",
    ),
    "an ack does not let the next of a group go": lambda: _nothing(settling, "_arm"),
    "what was held under a lapsed lease stays so": lambda: _nothing(groups, "strip"),
    "a repeated claim gets a message that blocks its group": lambda: _all(
        _without(claims, "_CLAIM", f"AND {claims.NOT_BLOCKED}"),
        _without(claims, "_PROLONG", f"AND {claims.NOT_BLOCKED}"),
    ),
    "the former holder of a message that blocks its group may settle it": lambda: patch.object(
        slicing.Piece, "is_held", lambda piece, span, _: piece.token == span.token
    ),
    "watermarks are raised beside transactions that may store below them": lambda: _without(
        claims, "_CLAIM", "pg_snapshot_xmin(snapshot)", "pg_snapshot_xmax(snapshot)"
    ),
    "watermarks are raised above what is left": lambda: _without(
        read_cursors, "_places", "if read.taken is None:", "if True:"
    ),
    "watermarks are raised to the moment of the read": lambda: patch.object(read_cursors, "_GUARD", 0),
    "what comes late does not lower the watermarks": lambda: _all(
        _nothing(bundles, "lower"), _nothing(settling, "lower_released")
    ),
    "a dedupe key is given to each who asks": lambda: _without(
        dedupe, "_RESERVE", "WHERE k.expires_at <= $5", "WHERE k.expires_at <= $5 OR true"
    ),
    "a dedupe key is confirmed for any message": lambda: _without(
        dedupe, "_CONFIRM", "AND k.value = a.value"
    ),
    "a unique key is changed whatever stands": lambda: _without(
        dedupe, "_SET", "AND value = $3", "AND ($3::bytea IS NULL OR true)"
    ),
    "an unknown outcome is told as a failure": lambda: _without(
        faults, "_broken", "if writing:", "if writing and False:"
    ),
}
"""Each by what is wrong then."""
