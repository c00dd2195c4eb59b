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


MUTATIONS: dict[str, Callable[[], Defect]] = {
    "removals of parts do not lock their bundle": lambda: _nothing(bundles, "lock"),
    "a claim takes what is free of what it wanted": lambda: _without(
        claims, "_CLAIM", "WHERE (SELECT count(*) FROM locked) = (SELECT count(*) FROM wanted)", ""
    ),
    "an ack leaves the data": lambda: _all(
        _without(settling, "_DELETE_ONE", "WHERE gone.is_long", "WHERE NOT gone.is_long"),
        _without(settling, "_DELETE_WHOLE", "WHERE gone.is_long", "WHERE NOT gone.is_long"),
    ),
    "an ack does not compare the token": lambda: _all(
        _without(settling, "_DELETE_ONE", "AND s.token IS NOT DISTINCT FROM $6", "AND $6::uuid IS NOT NULL"),
        _without(settling, "_DELETE_WHOLE", "AND s.token IS NOT DISTINCT FROM a.token", ""),
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
