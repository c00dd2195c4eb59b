"""The part of CQL that the Cassandra store uses, read from the store's own statements."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from tests.model.places import replace

TABLES = {  # partition key, clustering key
    "entry": (("shard",), ("kind", "priority", "due", "id", "first")),
    "queue": (("name",), ()),
    "shard_directory": (("queue",), ("time_shard", "number")),
}


class Condition(NamedTuple):
    """``names op values``: a tuple of columns is compared as one; ``values`` are bind markers or constants."""

    names: tuple[str, ...]
    operator: str
    values: tuple[Any, ...]


class Parsed(NamedTuple):
    """A statement with its bind markers numbered."""

    verb: str
    table: str
    columns: tuple[str, ...] = ()
    assigned: tuple[Any, ...] = ()
    where: tuple[Condition, ...] = ()
    conditions: tuple[Condition, ...] = ()
    exists: bool | None = None  # IF EXISTS, IF NOT EXISTS
    timestamp: Any = None
    limit: Any = None
    limit_each: Any = None  # per partition


class Marker(NamedTuple):
    """A bind marker, by its number."""

    index: int  # type: ignore[assignment]  # and no method of tuples


_TOKEN = re.compile(r"0x[0-9a-f]*|\w+|<=|>=|[=<>(),?]", re.IGNORECASE)


@cache
def parse(query: str) -> Parsed:
    return _Parser(query).statement()


def bound(value: Any, values: Sequence[Any]) -> Any:
    """The value of a marker, or the constant."""
    return values[value.index] if isinstance(value, Marker) else value


class _Parser:
    def __init__(self, query: str) -> None:
        self._query, self._tokens, self._at, self._markers = query, _TOKEN.findall(query), 0, 0

    def statement(self) -> Parsed:
        verb = self._next()
        parsed: Parsed = getattr(self, f"_{verb.lower()}")()
        assert self._at == len(self._tokens), f"not read to its end: {self._query}"
        return parsed

    def _select(self) -> Parsed:
        columns = tuple(self._listed(self._selected))
        self._expect("FROM")
        table = self._next()
        parsed = Parsed("SELECT", table, columns, where=tuple(self._where()))
        if self._skip("PER"):
            self._expect("PARTITION", "LIMIT")
            parsed = replace(parsed, limit_each=self._value())
        return replace(parsed, limit=self._value()) if self._skip("LIMIT") else parsed

    def _insert(self) -> Parsed:
        self._expect("INTO")
        table = self._next()
        columns = tuple(self._bracketed(self._next))
        self._expect("VALUES")
        parsed = Parsed("INSERT", table, columns, tuple(self._bracketed(self._value)))
        return self._using(self._conditional(self._using(parsed)))

    def _update(self) -> Parsed:
        parsed = self._using(Parsed("UPDATE", self._next()))
        self._expect("SET")
        pairs = list(self._listed(self._assignment))
        parsed = replace(parsed, columns=tuple(p[0] for p in pairs), assigned=tuple(p[1] for p in pairs))
        return self._conditional(replace(parsed, where=tuple(self._where())))

    def _delete(self) -> Parsed:
        self._expect("FROM")
        parsed = self._using(Parsed("DELETE", self._next()))
        return self._conditional(replace(parsed, where=tuple(self._where())))

    def _using(self, parsed: Parsed) -> Parsed:
        if not self._skip("USING"):
            return parsed
        if self._skip("TTL"):
            self._value()  # nothing ends by itself here
            return parsed
        self._expect("TIMESTAMP")
        return replace(parsed, timestamp=self._value())

    def _conditional(self, parsed: Parsed) -> Parsed:
        if not self._skip("IF"):
            return parsed
        if self._skip("NOT"):
            self._expect("EXISTS")
            return replace(parsed, exists=False)
        if self._skip("EXISTS"):
            return replace(parsed, exists=True)
        return replace(parsed, conditions=tuple(self._all_of()))

    def _where(self) -> Iterator[Condition]:
        if self._skip("WHERE"):
            yield from self._all_of()

    def _all_of(self) -> Iterator[Condition]:
        yield self._condition()
        while self._skip("AND"):
            yield self._condition()

    def _condition(self) -> Condition:
        names = tuple(self._bracketed(self._next)) if self._peek("(") else (self._next(),)
        operator = self._next().upper()
        values = tuple(self._bracketed(self._value)) if self._peek("(") else (self._value(),)
        if operator == "IN" and isinstance(values[0], int):
            values = (values,)  # constants
        return Condition(names, operator, values)

    def _assignment(self) -> tuple[str, Any]:
        name = self._next()
        self._expect("=")
        return name, self._value()

    def _selected(self) -> str:
        name = self._next()
        return f"WRITETIME {self._bracketed_one()}" if name == "WRITETIME" else name

    def _bracketed_one(self) -> str:
        (name,) = self._bracketed(self._next)
        return str(name)

    def _value(self) -> Any:
        token = self._next()
        if token == "?":
            self._markers += 1
            return Marker(self._markers - 1)
        if token == "null":
            return None
        return bytes.fromhex(token[2:]) if token.startswith("0x") else int(token)

    def _bracketed(self, read: Any) -> list[Any]:
        self._expect("(")
        items = list(self._listed(read))
        self._expect(")")
        return items

    def _listed(self, read: Any) -> Iterator[Any]:
        yield read()
        while self._skip(","):
            yield read()

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self, token: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].upper() == token

    def _skip(self, token: str) -> bool:
        found = self._peek(token)
        self._at += found
        return found

    def _expect(self, *tokens: str) -> None:
        for token in tokens:
            assert self._skip(token), f"{token} is missing in: {self._query}"
