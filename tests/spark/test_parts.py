"""The parts of a partition depend on its rows, not on how they come."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructType

from shardq.spark import spool
from shardq.spark.columns import Columns
from shardq.spark.options import SendOptions
from shardq.spark.parts import PartCutter

SCHEMA = (
    StructType()
    .add("body", StringType())
    .add("priority", IntegerType())
    .add("headers", MapType(StringType(), LongType()))
)
ARROW = pa.schema(
    [("body", pa.string()), ("priority", pa.int32()), ("headers", pa.map_(pa.string(), pa.int64()))]
)
SAME_SIZES = [HealthCheck.function_scoped_fixture]  # the fixture holds for all examples
ROWS = st.lists(
    st.tuples(
        st.text(max_size=6),
        st.one_of(st.none(), st.integers(0, 9)),
        st.one_of(st.none(), st.dictionaries(st.text("ab", min_size=1), st.integers(0, 3), max_size=2)),
    ),
    max_size=60,
)


def test_rows_that_differ_in_their_keys_alone_make_the_same_parts_in_any_order() -> None:
    schema, send = StructType().add("body", StringType()).add("key", StringType()), options(shard_by="key")

    def fingerprints(keys: list[str]) -> list[str]:
        batch = pa.RecordBatch.from_pydict({"body": ["tick"] * len(keys), "key": keys})
        found = PartCutter([batch], Columns.of(schema, send), send, partition=0, start=0)
        return [part.fingerprint for part in found]

    keys = [f"k{number}" for number in range(50)]
    assert fingerprints(keys) == fingerprints(keys[::-1])


def options(**chosen: Any) -> SendOptions:
    return SendOptions(url="sqlite:///x.db", queue="q", **chosen)


def batches(rows: list, sizes: list[int]) -> list[pa.RecordBatch]:
    cut, start = [], 0
    for size in [*sizes, len(rows)]:
        columns = list(zip(*rows[start : start + size], strict=True)) or [(), (), ()]
        maps = [None if one is None else list(one.items()) for one in columns[2]]
        arrays = [
            pa.array(columns[0], pa.string()),
            pa.array(columns[1], pa.int32()),
            pa.array(maps, ARROW[2].type),
        ]
        cut.append(pa.RecordBatch.from_arrays(arrays, schema=ARROW))
        start += size
    return cut


def parts(rows: list, sizes: list[int], **chosen: object) -> list:
    send = options(**chosen)
    return list(PartCutter(batches(rows, sizes), Columns.of(SCHEMA, send), send, partition=3, start=5))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "PART_MESSAGES", 7)
    monkeypatch.setattr(spool, "PART_BYTES", 25)


@settings(suppress_health_check=SAME_SIZES, deadline=None, max_examples=150)
@given(rows=ROWS, sizes=st.lists(st.integers(0, 9), max_size=9), seed=st.integers())
def test_rows_in_any_order_and_any_batches_make_the_same_parts(rows, sizes, seed) -> None:
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)
    assert parts(shuffled, sizes) == parts(rows, [])


@settings(suppress_health_check=SAME_SIZES, deadline=None, max_examples=100)
@given(rows=ROWS, sizes=st.lists(st.integers(0, 9), max_size=9), memory=st.integers(1, 60))
def test_rows_are_the_same_in_memory_in_a_file_and_in_both(rows, sizes, memory) -> None:
    rows = [(f"{body}\0", *rest) for body, *rest in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "MEMORY_BYTES", memory)
        made = parts(rows, sizes)
    assert made == parts(rows, sizes)


def test_rows_that_fit_into_memory_need_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(**_: object) -> None:
        raise AssertionError("a file was made")

    monkeypatch.setattr(tempfile, "TemporaryFile", made)
    parts([("a", 1, None)] * 100, [30])
    monkeypatch.setattr(spool, "MEMORY_BYTES", 50)
    with pytest.raises(AssertionError, match="a file was made"):
        parts([("a", 1, None)] * 100, [60])


@settings(suppress_health_check=SAME_SIZES, deadline=None, max_examples=100)
@given(rows=ROWS, sizes=st.lists(st.integers(0, 9), max_size=9))
def test_rows_of_a_stable_input_keep_their_order_in_any_batches(rows, sizes) -> None:
    made = parts(rows, sizes, input_order="stable")
    assert made == parts(rows, [], input_order="stable")
    assert [body.decode() for part in made for body in part.bodies] == [row[0] for row in rows]


@given(rows=ROWS)
@settings(suppress_health_check=SAME_SIZES, deadline=None, max_examples=50)
def test_no_row_is_lost_or_made_up(rows) -> None:
    def key(row: tuple) -> tuple:
        return row[0], row[1], sorted(row[2].items())

    made = parts(rows, [4, 4])
    got = [
        (body.decode(), priority, header or {})
        for part in made
        for body, priority, header in zip(part.bodies, part.priorities, part.headers, strict=True)
    ]
    sent = [(body, 5 if priority is None else priority, header or {}) for body, priority, header in rows]
    assert sorted(map(key, got)) == sorted(map(key, sent))


def test_other_rows_have_another_fingerprint() -> None:
    (one,) = parts([("a", 1, None), ("b", 1, None)], [])
    (two,) = parts([("a", 1, None), ("b", 2, None)], [])
    (three,) = parts([("a", 1, {"a": 1}), ("b", 1, None)], [])
    assert len({one.fingerprint, two.fingerprint, three.fingerprint}) == 3


def test_rows_with_an_id_are_known_by_it_whatever_else_changes() -> None:
    schema = StructType().add("body", StringType()).add("id", StringType())
    send = options(id_column="id")

    def fingerprint(bodies: list[str]) -> str:
        batch = pa.RecordBatch.from_pydict({"body": bodies, "id": ["1", "2"]})
        (part,) = PartCutter([batch], Columns.of(schema, send), send, partition=0, start=0)
        return part.fingerprint

    assert fingerprint(["a", "b"]) == fingerprint(["c", "d"])


def test_rows_without_an_id_are_known_by_their_content() -> None:
    schema = StructType().add("body", StringType()).add("id", StringType())
    send = options(id_column="id")

    def fingerprint(bodies: list[str], ids: list[str | None]) -> str:
        columns = {"body": pa.array(bodies), "id": pa.array(ids, pa.string())}
        batch = pa.RecordBatch.from_pydict(columns)
        (part,) = PartCutter([batch], Columns.of(schema, send), send, partition=0, start=0)
        return part.fingerprint

    assert fingerprint(["a", "b"], [None, None]) == fingerprint(["b", "a"], [None, None])
    assert fingerprint(["a", "b"], [None, None]) != fingerprint(["a", "c"], [None, None])
    assert fingerprint(["a", "b"], ["1", None]) == fingerprint(["c", "b"], ["1", None])


def test_a_part_of_an_earlier_version_is_known_by_its_fingerprint() -> None:
    (part,) = parts([("a", 1, None), ("b", None, {"n": 7})], [])
    assert part.fingerprint == "ff0fe9c9cd0bfa88fb626746bdb6c10f"
