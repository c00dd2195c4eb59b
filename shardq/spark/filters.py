"""Filters of a query that spare reads of shards, of slices or of a part of the history.

Spark hands them over with ``spark.sql.python.filterPushdown.enabled``. It applies all of them again, so it is enough
that nothing is left out that they keep.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from shardq.base.clock import from_datetime
from shardq.base.shard import Shard
from shardq.storage.requests import StoredSlice

__all__ = ["Pruning"]

_COMPARE: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_OF_SLICES: dict[str, Callable[[StoredSlice], Any]] = {  # no message has null there
    "priority": lambda stored: stored.bundle.priority,
    "enqueued_at": lambda stored: stored.bundle.enqueued_at,
    "due": lambda stored: stored.due,
    "deliveries": lambda stored: stored.deliveries,
    "state": lambda stored: stored.state.value,
}


@dataclass(frozen=True)
class _Condition:
    column: str
    compare: type[Filter]
    value: Any
    negated: bool = False

    def holds(self, found: Any) -> bool:
        if self.compare is In:
            return (found in self.value) is not self.negated
        return _COMPARE[self.compare](found, self.value) is not self.negated


class Pruning:
    """The conditions of filters on shards and on slices. Without filters nothing is left out."""

    def __init__(self, filters: Iterable[Filter] = ()) -> None:
        known = [condition for each in filters if (condition := _condition(each)) is not None]
        self._of_shard = [each for each in known if each.column == "shard"]
        self._of_slice = [each for each in known if each.column in _OF_SLICES]

    def keeps_shard(self, shard: Shard) -> bool:
        """Return False when no message of the shard passes."""
        return all(each.holds(str(shard)) for each in self._of_shard)

    def keeps(self, stored: StoredSlice) -> bool:
        """Return False when no message of the slice passes."""
        return all(each.holds(_OF_SLICES[each.column](stored)) for each in self._of_slice)

    def period(self, since: int, until: int) -> tuple[int, int]:
        """Return the part of a period that a message may be due in."""
        for each in self._of_slice:
            if each.column != "due" or each.negated or each.compare is In:
                continue
            if each.compare in (GreaterThan, GreaterThanOrEqual, EqualTo, EqualNullSafe):
                since = max(since, each.value)
            if each.compare in (LessThan, LessThanOrEqual, EqualTo, EqualNullSafe):
                until = min(until, each.value + 1)
        return since, max(since, until)


def _condition(given: Filter) -> _Condition | None:
    """Return the usable part of a filter."""
    if isinstance(given, Not):
        inner = _condition(given.child)
        return None if inner is None else _Condition(inner.column, inner.compare, inner.value, True)
    column: tuple[str, ...] = getattr(given, "attribute", ())
    value = getattr(given, "value", None)
    if len(column) != 1 or type(given) not in (In, *_COMPARE):
        return None
    if isinstance(given, In):
        several = _values(given.value)
        return None if several is None else _Condition(column[0], In, several)
    one = _values([value])
    return None if one is None else _Condition(column[0], type(given), one[0])


def _values(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Convert values to those of slices; None where one cannot be compared."""
    if any(value is None or (isinstance(value, datetime) and value.tzinfo is None) for value in values):
        return None
    return tuple(from_datetime(value) if isinstance(value, datetime) else value for value in values)
