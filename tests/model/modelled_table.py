"""Partitions as Cassandra keeps them: cells with write times, tombstones, and conditional batches.

A cell is its last write; of two writes with the same time a deletion wins, then the greater value. A deletion
hides what has its own or an earlier time, whenever that is written. Tombstones stay: gc_grace is never over here. A
conditional batch looks and writes at one moment, with a time after that of every conditional batch before it.

Values are never changed in place, so a state is copied by copying dicts of references.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct, structs

from tests.model.modelled_cql import TABLES, Condition, Parsed, bound, parse
from tests.model.places import replace

Statement: TypeAlias = tuple[str, Sequence[Any]]
Key: TypeAlias = tuple[Any, ...]
Where: TypeAlias = tuple[str, Key]  # table and partition

NEVER = -(2**63)
_COMPARE = {"=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


class Cell(NamedTuple):
    """The last write of a column; without a value it is a tombstone."""

    time: int
    value: Any


class Row(NamedTuple):
    """What was written of a row: its marker (of INSERT), its last deletion, its cells by name."""

    marker: int = NEVER
    deleted: int = NEVER
    cells: tuple[tuple[str, Cell], ...] = ()

    def live(self, column: str) -> Cell | None:
        for name, cell in self.cells:
            if name == column and cell.time > self.deleted and cell.value is not None:
                return cell
        return None

    def value(self, column: str) -> Any:
        cell = self.live(column)
        return None if cell is None else cell.value

    @property
    def exists(self) -> bool:
        return self.marker > self.deleted or any(self.live(name) for name, _ in self.cells)

    def write(self, time: int, columns: Mapping[str, Any], *, insert: bool) -> Row:
        cells = dict(self.cells)
        for name, value in columns.items():
            cells[name] = max(cells.get(name, Cell(NEVER, b"")), Cell(time, value), key=_rank)
        marker = max(self.marker, time) if insert else self.marker
        return Row(marker, self.deleted, tuple(sorted(cells.items())))


def merged_cells(one: Row, two: Row) -> Row:
    """Both together: of each cell the last write."""
    cells = dict(one.cells)
    for name, cell in two.cells:
        cells[name] = max(cells.get(name, cell), cell, key=_rank)
    return Row(max(one.marker, two.marker), max(one.deleted, two.deleted), tuple(sorted(cells.items())))


def _rank(cell: Cell) -> tuple[int, bool, Any]:
    return cell.time, cell.value is None, b"" if cell.value is None else cell.value


class Database(Struct, frozen=True):
    """All partitions, and the time of the last conditional batch in each."""

    rows: Mapping[Where, Mapping[Key, Row]] = {}
    dropped: Mapping[Where, int] = {}
    ballots: Mapping[Where, int] = {}
    key: int = 0  # equal for equal states

    def __post_init__(self) -> None:
        rows = frozenset((where, frozenset(rows.items())) for where, rows in self.rows.items())
        written = rows, frozenset(self.dropped.items()), frozenset(self.ballots.items())
        structs.force_setattr(self, "key", hash(written))

    @property
    def whole(self) -> Database:
        """All that there is: every client sees it."""
        return self

    def select(self, statement: Statement, centre: int = 0, *, serial: bool = False) -> list[tuple[Any, ...]]:
        """The rows of a query, in the order of their keys."""
        query, values = statement
        parsed = parse(query)
        found: list[tuple[Any, ...]] = []
        for where in _partitions(parsed, values):
            part = [_shown(parsed, named) for named in self._matching(where, parsed, values)]
            found += part[: bound(parsed.limit_each, values)]
        return found[: bound(parsed.limit, values)]

    def write(self, statements: Sequence[Statement], now: int, centre: int = 0) -> Database:
        """Plain writes: with their own times, or the server's."""
        return self._written(statements, now, own_times=True)

    def apply(
        self,
        statements: Sequence[Statement],
        now: int,
        centre: int = 0,
    ) -> tuple[Database, bool]:
        """Conditional writes to one partition: all of them when all conditions hold."""
        (where,) = {where for query, values in statements for where in _partitions(parse(query), values)}
        if not all(self._holds(where, statement) for statement in statements):
            return self, False
        ballot = max(now, self.ballots.get(where, NEVER) + 1)
        ballots = {**self.ballots, where: ballot}
        return self._written(statements, ballot, own_times=False, ballots=ballots), True

    def _holds(self, where: Where, statement: Statement) -> bool:
        query, values = statement
        parsed = parse(query)
        row = self.rows.get(where, {}).get(_clustering(parsed, values), Row())
        if parsed.exists is not None and row.exists != parsed.exists:
            return False
        return all(row.value(c.names[0]) == bound(c.values[0], values) for c in parsed.conditions)

    def _written(
        self,
        statements: Sequence[Statement],
        now: int,
        *,
        own_times: bool,
        ballots: Mapping[Where, int] | None = None,
    ) -> Database:
        rows, dropped = dict(self.rows), dict(self.dropped)
        for query, values in statements:
            parsed = parse(query)
            own = bound(parsed.timestamp, values)
            assert own_times or own is None, "a conditional write has no time of its own"
            time = now if own is None else own
            (where,) = _partitions(parsed, values)
            partition = rows[where] = dict(rows.get(where, {}))
            key = _clustering(parsed, values)
            if parsed.verb == "DELETE" and len(key) < len(TABLES[parsed.table][1]):
                dropped[where] = max(dropped.get(where, NEVER), time)
                keys = list(partition)
            else:
                keys = [key]
            for each in keys:
                old = partition.get(each, Row(deleted=dropped.get(where, NEVER)))
                partition[each] = _changed(old, parsed, values, time)
        return Database(rows, dropped, self.ballots if ballots is None else ballots)

    def _matching(
        self, where: Where, parsed: Parsed, values: Sequence[Any]
    ) -> Iterator[tuple[Mapping[str, Any], Row]]:
        partition_names, names = TABLES[parsed.table]
        partition = self.rows.get(where, {})
        conditions = [c for c in parsed.where if c.names[0] not in partition_names]
        tests = [(c.names, c.operator, _operand(c, values)) for c in conditions]
        for key in sorted(partition):
            named = dict(zip((*partition_names, *names), (*where[1], *key), strict=True))
            if partition[key].exists and all(_meets(named, *test) for test in tests):
                yield named, partition[key]


def _changed(old: Row, parsed: Parsed, values: Sequence[Any], time: int) -> Row:
    if parsed.verb == "DELETE":
        return replace(old, deleted=max(old.deleted, time))
    key_names = {name for part in TABLES[parsed.table] for name in part}
    assigned = zip(parsed.columns, parsed.assigned, strict=True)
    columns = {name: bound(value, values) for name, value in assigned if name not in key_names}
    return old.write(time, columns, insert=parsed.verb == "INSERT")


def _partitions(parsed: Parsed, values: Sequence[Any]) -> list[Where]:
    names = TABLES[parsed.table][0]
    choices = [_choices(parsed, name, values) for name in names]
    return [(parsed.table, key) for key in product(*choices)]


def _clustering(parsed: Parsed, values: Sequence[Any]) -> Key:
    names = TABLES[parsed.table][1]
    return tuple(choice for name in names for choice in _choices(parsed, name, values))


def _choices(parsed: Parsed, name: str, values: Sequence[Any]) -> list[Any]:
    """What the statement says of a column of the key."""
    if parsed.verb == "INSERT":
        return [bound(parsed.assigned[parsed.columns.index(name)], values)]
    for condition in parsed.where:
        if condition.names == (name,) and condition.operator in ("=", "IN"):
            operand = _operand(condition, values)
            return list(operand) if condition.operator == "IN" else [operand[0]]
    return []


def _operand(condition: Condition, values: Sequence[Any]) -> Any:
    operand = tuple(bound(value, values) for value in condition.values)
    return tuple(dict.fromkeys(operand[0])) if condition.operator == "IN" else operand


def _meets(named: Mapping[str, Any], names: Sequence[str], comparison: str, operand: Any) -> bool:
    if comparison == "IN":
        return named[names[0]] in operand
    return bool(_COMPARE[comparison](tuple(named[name] for name in names), operand))


def _shown(parsed: Parsed, found: tuple[Mapping[str, Any], Row]) -> tuple[Any, ...]:
    named, row = found
    return tuple(_column(name, named, row) for name in parsed.columns)


def _column(name: str, named: Mapping[str, Any], row: Row) -> Any:
    if name.startswith("WRITETIME "):
        cell = row.live(name.removeprefix("WRITETIME "))
        return None if cell is None else cell.time
    return named[name] if name in named else row.value(name)
