"""Defects of the PostgreSQL store, each in one place: histories of stepped clients have to find them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

from shardq.storage.postgresql import bundles, claims, groups, settling

__all__ = ["MUTATIONS", "MUTATIONS_OF_GROUPS"]

Defect = AbstractContextManager[Any]


def _without(module: Any, name: str, words: str, others: str) -> Defect:
    """A statement that has other words in the place of some."""
    statement = getattr(module, name)
    assert words in statement, f"{name} has no {words!r}"
    return patch.object(module, name, statement.replace(words, others))


def _nothing(module: Any, name: str, result: object = None) -> Defect:
    """A function that does nothing."""
    assert callable(getattr(module, name))
    return patch.object(module, name, lambda *_, **__: result)


def _all(*defects: Defect) -> Defect:
    stack = ExitStack()
    for each in defects:
        stack.enter_context(each)
    return stack


def _in_acks(words: str, others: str) -> Defect:
    statements = ("_DELETE_ONE", "_DELETE_MANY", "_DELETE_IN_ORDER")
    return _all(*(_without(settling, name, words, others) for name in statements))


MUTATIONS: dict[str, Callable[[], Defect]] = {
    "removals of parts do not lock their bundle": lambda: _nothing(bundles, "lock"),
    "a claim takes what is free of what it wanted": lambda: _without(
        claims, "_CLAIM", "WHERE (SELECT count(*) FROM locked) = (SELECT count(*) FROM wanted)", ""
    ),
    "an ack leaves the data": lambda: _in_acks("a.is_whole AND a.is_long", "a.is_whole AND NOT a.is_long"),
    "an ack forgets the bundle": lambda: _in_acks(
        "done a WHERE a.is_whole\n    )", "done a WHERE false\n    )"
    ),
    "an ack does not compare the token": lambda: _in_acks("AND s.token IS NOT DISTINCT FROM a.token", ""),
    "an ack of a part does not lock what is left": lambda: _in_acks("FOR KEY SHARE OF s SKIP LOCKED", ""),
    "an ack of the front of a slice deletes it": lambda: _in_acks(
        "s.count > a.count AS is_longer", "false AS is_longer"
    ),
}
"""Each by what is wrong then."""

MUTATIONS_OF_GROUPS: dict[str, Callable[[], Defect]] = {
    "changes of groups do not lock them": lambda: _all(
        _nothing(settling, "lock"),
        _nothing(bundles, "lock"),
        patch.object(groups, "try_lock", lambda _, __, names: names),
        _nothing(groups, "try_lock_shard", True),
        _nothing(claims, "lock_claims"),
    ),
    "an ack lets the second of a group go before the first is gone": lambda: patch.object(
        groups, "vacated", groups.first_places
    ),
    "an ack does not let the next of a group go": lambda: _nothing(settling, "_arm"),
}
"""Those of changes of groups."""
