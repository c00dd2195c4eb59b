"""The modelled table answers the store's own statements as a real server does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cassandra_server import keyspace_beside

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from shardq.storage.cassandra import bundles, changing, probe_reads, scanning, schema, shard_rows
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.url import parse
from tests.model.modelled_table import Database, Statement

pytestmark = pytest.mark.server

NOW = 1_700_000_000_000_000
PAST, EARLIER, FUTURE = 20, 10, 4_000_000_000_000_000  # times of plain writes
IDS = [b"", b"\1", b"\1\0", b"\2"]

values = st.sampled_from([b"", b"a", b"b"])
seen = st.none() | values
keys = st.tuples(
    st.sampled_from([0, 1, 2, 3]), st.just(0), st.sampled_from([0, 5]), st.sampled_from(IDS), st.just(0)
)
times = st.sampled_from([EARLIER, PAST, FUTURE])

plain = st.lists(
    st.one_of(
        st.tuples(st.just(bundles.CQL_ROW), st.tuples(keys, values, times)),
        st.tuples(st.just(bundles.CQL_ROW_WITH_DATA), st.tuples(keys, values, values, times)),
        st.tuples(st.just(bundles.CQL_DELETE), st.tuples(times, keys)),
    ),
    min_size=1,
    max_size=3,
)
others = st.tuples(
    st.sampled_from([1, 2, 3]), st.just(0), st.sampled_from([0, 5]), st.sampled_from(IDS), st.just(0)
)
on_control = st.sampled_from(
    [[], [changing.CQL_REPLACE], [changing.CQL_TAKE], [changing.CQL_REPLACE, changing.CQL_TAKE]]
)
conditional = st.lists(
    st.one_of(
        st.tuples(st.just(changing.CQL_INSERT), st.tuples(others, values)),
        st.tuples(st.just(changing.CQL_INSERT_BUNDLE), st.tuples(others, values, values)),
        st.tuples(st.just(changing.CQL_REPLACE), st.tuples(values, others, seen)),
        st.tuples(st.just(changing.CQL_REPLACE_CARRYING), st.tuples(values, values, others, seen)),
        st.tuples(st.just(changing.CQL_REPLACE_TALLY), st.tuples(values, others, seen, seen)),
        st.tuples(st.just(changing.CQL_TAKE), st.tuples(values, others, seen)),
        st.tuples(st.just(changing.CQL_DELETE), st.tuples(others)),
        st.tuples(st.just(changing.CQL_DELETE_SEEN), st.tuples(others, seen)),
        st.tuples(st.just(changing.CQL_DELETE_TALLIED), st.tuples(others, seen, seen)),
    ),
    max_size=4,
    unique_by=lambda statement: next(
        part for part in statement[1] if isinstance(part, tuple)
    ),  # one for each row
)
controlled = st.builds(
    lambda queries, value, expected: [(query, (value, changing.CONTROL_KEY, expected)) for query in queries],
    on_control,
    values,
    seen,
)
guarded = st.builds(lambda *parts: [each for part in parts for each in part], conditional, controlled)
writes = st.lists(st.tuples(st.just(False), plain) | st.tuples(st.just(True), guarded), max_size=12)


@pytest.fixture(scope="module")
def session(cassandra_url: str) -> Iterator[Session]:
    opened = Session(parse(keyspace_beside(cassandra_url, "modelled")))
    schema.apply(opened)
    yield opened
    opened.close()


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=writes)
def test_the_model_has_the_rows_that_the_server_has(
    session: Session, steps: list[tuple[bool, list[tuple[str, Any]]]]
) -> None:
    shard, database = os.urandom(8).hex(), Database()
    for on_condition, drawn in steps:
        statements = [_statement(query, parts, shard) for query, parts in drawn]
        if not on_condition:
            session.write(statements)
            database = database.write(statements, NOW)
            continue
        statements.append((changing.CQL_TURN, (b"turn", shard, *changing.CONTROL_KEY)))
        if not any(" IF " in query for query, _ in statements):
            statements.append((changing.CQL_EXPECT, (b"turn", shard, *changing.CONTROL_KEY, None)))
        applied = session.apply(statements)
        database, modelled = database.apply(statements, NOW)
        assert modelled == applied
    for query in _queries(shard):
        assert _timed(database.select(query)) == _timed(session.read(*query))


def _statement(query: str, parts: Sequence[Any], shard: str) -> Statement:
    """Put the shard before the key, and the key among the values."""
    flat: list[Any] = []
    for part in parts:
        flat += (shard, *part) if isinstance(part, tuple) else (part,)
    return query, flat


def _queries(shard: str) -> list[Statement]:
    return [
        (shard_rows.CQL_CONTROL_AND_LEASES, (shard, IDS)),
        (shard_rows.CQL_LEASES, (shard, IDS[:2])),
        (shard_rows.CQL_CARRIED, (shard, IDS)),
        (shard_rows.CQL_READY, (shard, [0, 1], 0, b"\1", 0, 5)),
        (shard_rows.CQL_BARE_READY, (shard, [0, 1], 0, b"\1", 0, 5)),
        (
            f"SELECT priority, due, id, first FROM entry {scanning.CQL_RANGE}",
            (shard, 2, 0, 0, b"\1", 0, 0, 5, b"\2", 0),
        ),
        (shard_rows.CQL_BUNDLES, (shard, IDS)),
        (shard_rows.CQL_HEADS, (shard, IDS)),
        (shard_rows.CQL_HISTORY, (shard, 0, b"", 0, 9)),
        (shard_rows.CQL_DUE_ROWS, (shard, 0, 5, 2)),
        (probe_reads.CQL_CONTROLS, ([shard],)),
        (probe_reads.CQL_READY_ROWS, ([shard], [0, 1], 0, 5, 3)),
        (probe_reads.CQL_HELD, ([shard],)),
        (changing.CQL_READ_TURN, (shard, *changing.CONTROL_KEY)),
    ]


def _timed(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows, with the times of conditional batches left out."""
    return [tuple("ballot" if _is_ballot(value) else value for value in row) for row in rows]


def _is_ballot(value: Any) -> bool:
    return isinstance(value, int) and 10**15 < value < FUTURE
