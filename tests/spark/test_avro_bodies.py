"""Bodies in Avro become typed columns, and what was not written with the schema shows as corrupt.

What fastavro writes is the measure: it is another implementation.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardq
from shardq.spark.bodies import CORRUPT, BodyReader, body_type
from shardq.spark.options import BrowseOptions
from tests.spark.every_store import on_every_store

EVERY_TYPE = {
    "type": "record",
    "name": "Every",
    "namespace": "org.example",
    "doc": "passed over",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "r", "type": "bytes"},
        {"name": "s", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "e", "type": {"type": "enum", "name": "Suit", "symbols": ["SPADES", "HEARTS"]}},
        {"name": "x", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "n", "type": ["null", "long"], "default": None},
        {"name": "both", "type": ["int", "null", "long"]},
        {"name": "either", "type": ["float", "double"]},
        {"name": "a", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "m", "type": {"type": "map", "values": "double"}},
        {"name": "o", "type": {"type": "record", "name": "Inner", "fields": [{"name": "suit", "type": "Suit"}]}},
        {"name": "again", "type": ["null", "org.example.Inner"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "at3", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "here", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "here3", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}},
        {
            "name": "cf",
            "type": {
                "type": "fixed", "name": "Sum", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 0
            },
        },
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "t", "type": {"type": "int", "logicalType": "something-new"}},
    ],
}  # fmt: skip
ROW: dict[str, Any] = {
    "b": True, "i": -(2**31), "l": 2**63 - 1, "f": 0.5, "d": 1 / 3, "r": b"\0\xff", "s": "ü", "e": "HEARTS",
    "x": b"ab", "n": None, "both": 2**40, "either": 0.5, "a": [1, None], "m": {"k": 1.5}, "o": {"suit": "SPADES"},
    "again": {"suit": "HEARTS"}, "day": date(1, 1, 1), "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    "at3": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), "here": datetime(1, 1, 1, 0, 0, 0, 1),
    "here3": datetime(2026, 1, 31, 8), "c": Decimal("-123456789012345678901234567890123456.78"),
    "cf": Decimal(-999_999_999), "u": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "t": 7,
}  # fmt: skip
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": ["null", "string"]},
        {"name": "amount", "type": "double"},
        {"name": "lines", "type": {"type": "array", "items": "int"}},
    ],
}


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def written(schema: Any, row: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), row)
    return body.getvalue()


def options(schema: Any, **given: Any) -> BrowseOptions:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return BrowseOptions(url="sqlite:///x.db", queue="q", body_format="avro", body_schema=text, **given)


def read(schema: Any, *bodies: bytes | None, **given: Any) -> dict[str, list[Any]]:
    made = BodyReader(options(schema, **given)).columns(
        bodies, lambda: pa.array([f"m{n}" for n in range(len(bodies))])
    )
    return {name: column.to_pylist() for name, column in made.items()}


def test_each_type_of_avro_has_one_of_spark() -> None:
    assert body_type(options(EVERY_TYPE)).simpleString() == (
        "struct<b:boolean,i:int,l:bigint,f:float,d:double,r:binary,s:string,e:string,x:binary,n:bigint,both:bigint,"
        "either:double,a:array<int>,m:map<string,double>,o:struct<suit:string>,again:struct<suit:string>,day:date,"
        "at:timestamp,at3:timestamp,here:timestamp_ntz,here3:timestamp_ntz,c:decimal(38,2),cf:decimal(9,0),"
        "u:string,t:int>"
    )


def test_what_another_implementation_wrote_is_read() -> None:
    made = read(EVERY_TYPE, written(EVERY_TYPE, ROW))
    assert made[CORRUPT] == [None]
    assert made["body"] == [ROW | {"m": [("k", 1.5)]}]


@pytest.mark.parametrize("place", range(len(written(EVERY_TYPE, ROW))))
def test_a_body_that_is_cut_off_is_corrupt(place) -> None:
    cut = written(EVERY_TYPE, ROW)[:place]
    assert read(EVERY_TYPE, cut) == {"body": [None], CORRUPT: [cut]}


def test_a_body_that_goes_on_behind_its_end_is_corrupt() -> None:
    long = written(EVERY_TYPE, ROW) + b"\0"
    assert read(EVERY_TYPE, long) == {"body": [None], CORRUPT: [long]}


_ROWS = st.fixed_dictionaries(
    {
        "customer": st.none() | st.text(max_size=20),
        "amount": st.floats(allow_nan=False),
        "lines": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=200),
    }
)


@given(st.lists(_ROWS, max_size=4))
def test_any_rows_come_back(rows) -> None:
    made = read(ORDER, *(written(ORDER, row) for row in rows))
    assert made == {"body": rows, CORRUPT: [None] * len(rows)}


@given(st.binary(max_size=60))
def test_any_bytes_are_a_row_that_is_written_again_or_are_corrupt(body) -> None:
    made = read(ORDER, body)
    assert (made["body"] == [None]) is (made[CORRUPT] == [body])
    if made["body"] != [None]:
        assert read(ORDER, written(ORDER, made["body"][0]))["body"][0].keys() == made["body"][0].keys()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("boolean", b"\x02"),
        ("int", b"\x80\x80\x80\x80\x10"),  # 2**31
        ("long", b"\xff" * 10 + b"\x01"),
        ("long", b"\xff" * 9 + b"\x02"),
        ("long", b"\xff" * 1_000),
        ("string", b"\x01"),  # of minus one byte
        ("string", b"\x06ab"),
        ("string", b"\x02\xff"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01"),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe" + b"\xff" * 8 + b"\x01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64"),  # 100
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x9c"),  # -100
        ({"type": "array", "items": "int"}, b"\xfe" + b"\xff" * 8 + b"\x01"),
        ({"type": "array", "items": "int"}, b"\x02\x02"),  # no end
        ({"type": "array", "items": "int"}, b"\x01\x04\x02\x00"),  # a block of two bytes has one
        ({"type": "map", "values": "int"}, b"\xfe\xff\xff\x0f"),
    ],
)
def test_a_body_that_does_not_fit_is_corrupt_and_its_neighbours_are_not(kind, body) -> None:
    schema = record(("optional", ["null", kind]))
    none, row = written(schema, {"optional": None}), {"optional": None}
    assert read(schema, none, b"\x02" + body, None, none) == {
        "body": [row, None, None, row],
        CORRUPT: [None, b"\x02" + body, None, None],
    }


@pytest.mark.parametrize("body", [b"\x04", b"\x04\x02", b"\x01\x02", b"\x03"])
def test_a_branch_that_a_union_does_not_have_is_corrupt(body) -> None:
    assert read(record(("a", ["null", "int"])), body)[CORRUPT] == [body]


def test_blocks_may_say_how_long_they_are() -> None:
    schema = record(("a", {"type": "array", "items": "int"}), ("m", {"type": "map", "values": "string"}))
    blocks = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"  # minus two values in two bytes, then one value
    entries = b"\x01\x08\x02k\x02v" + b"\x00"
    assert read(schema, blocks + entries)["body"] == [{"a": [1, 2, 3], "m": [("k", "v")]}]


def test_no_bytes_are_no_row_and_failfast_names_the_message() -> None:
    assert read(ORDER, b"", None) == {"body": [None, None], CORRUPT: [b"", None]}
    with pytest.raises(shardq.InvalidMessage, match=r"message m1 cannot be read: b'\\xff'"):
        read(ORDER, None, b"\xff", body_mode="failfast")


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ("customer STRING", "it is not JSON"),
        ('"string"', "it is not a record"),
        ("[]", r"\[\] is not one type or null"),
        ('{"type": "array", "items": "int"}', "it is not a record"),
        ('{"type": "struct", "fields": []}', 'there is no type "struct"'),
        ("[" * 100_000, "nested too deeply"),
        ('{"type": "array", "items": ' * 2_000 + '"int"' + "}" * 2_000, "nested too deeply"),
        ({"type": "record", "name": "R"}, "record 'R' has no fields"),
        ({"type": "record", "fields": []}, "null is not a name"),
        ({"type": "record", "name": "a-b", "fields": []}, '"a-b" is not a name'),
        (record(("a", "strin")), "at 'a': there is no type \"strin\""),
        (record(("a", "null")), "at 'a': there is no type \"null\""),
        (record(("a", None)), "at 'a': null is not a type"),
        (record(("", "int")), "has no name"),
        (record(("a", "int"), ("A", "int")), "field 'A' twice"),
        (record(("a", {"type": "array"})), r"at 'a\[\]': null is not a type"),
        (record(("a", {"items": "int"})), "at 'a': .* has no type"),
        (record(("a", ["null", "R"])), "'R' is in itself"),
        (record(("a", ["int", "string"])), "is not one type or null: read the bodies with bodyFormat=binary"),
        (record(("a", ["null"])), "is not one type or null"),
        (record(("a", ["int", {"type": "int", "logicalType": "date"}])), "is not one type or null"),
        (record(("a", {"type": "enum", "name": "E", "symbols": []})), r"\[\] are no symbols"),
        (record(("a", {"type": "fixed", "name": "F", "size": 0})), "fixed of 0 bytes"),
        (record(("a", {"type": "bytes", "logicalType": "decimal"})), "decimal of null digits"),
        (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})), "decimal of 39 digits"),
        (record(("a", {"type": "fixed", "name": "R", "size": 1})), "a type 'R' already"),
        (record(("a", record(("b", ["null", "nope"])) | {"name": "Inner"})), "at 'a.b': there is no type"),
    ],
)
def test_a_schema_that_cannot_be_read_is_named_with_the_place(schema, part) -> None:
    with pytest.raises(shardq.InvalidSetting, match=part) as refused:
        body_type(options(schema))
    assert "bodySchema" in str(refused.value)


def test_a_schema_of_avro_that_is_given_for_json_gets_a_hint() -> None:
    given = BrowseOptions(url="sqlite:///x.db", queue="q", body_format="json", body_schema=json.dumps(ORDER))
    with pytest.raises(shardq.InvalidSetting, match="bodyFormat=avro"):
        body_type(given)


def test_a_record_may_be_null_where_the_writer_says_so() -> None:
    schema = ["null", record(("a", "int"))]
    assert read(schema, b"\x02\x02", b"\x00") == {"body": [{"a": 1}, None], CORRUPT: [None, b"\x00"]}


def test_a_schema_is_needed() -> None:
    with pytest.raises(shardq.InvalidSetting, match="bodyFormat=avro needs bodySchema"):
        body_type(BrowseOptions(url="sqlite:///x.db", queue="q", body_format="avro"))


@on_every_store
def test_a_queue_is_a_table_and_a_stream_of_columns_out_of_avro(pipes, queue) -> None:
    rows = [{"customer": f"c{n}", "amount": n / 2, "lines": [n]} for n in range(40)]
    queue.producer(bundle_messages=7).send_many([*(written(ORDER, row) for row in rows), b"broken", b""])
    chosen = {"bodyFormat": "avro", "bodySchema": json.dumps(ORDER)}
    found = pipes.read(queue, **chosen)
    assert found.selectExpr("sum(body.amount)", "sum(body.lines[0])").first()[:] == (390.0, 780)
    corrupt = found.where("corrupt_body IS NOT NULL").select(CORRUPT).collect()
    assert sorted(bytes(row[0]) for row in corrupt) == [b"", b"broken"]
    with pytest.raises(Exception, match="cannot be read: b'"):
        pipes.read(queue, **chosen, bodyMode="failfast").collect()
    stream = pipes.stream(queue, **chosen).select("body.*").writeStream
    pipes.run(stream.format("parquet").option("path", str(pipes.folder / "out")))
    stored = (
        pipes.spark.read.parquet(str(pipes.folder / "out")).where("customer IS NOT NULL").orderBy("amount")
    )
    assert [row.asDict() for row in stored.collect()] == rows
    assert (queue.counts().ready, queue.counts().in_flight) == (0, 0)


def test_a_table_of_a_catalog_keeps_the_schema(pipes, queue) -> None:
    queue.producer().send(written(ORDER, {"customer": "c", "amount": 1.5, "lines": []}))
    chosen = {"bodyFormat": "avro", "bodySchema": json.dumps(ORDER)}
    named = ", ".join(f"{name} '{value}'" for name, value in pipes.options(queue, **chosen).items())
    pipes.spark.sql(f"CREATE TABLE typed_by_avro USING shardq OPTIONS ({named})")
    try:
        assert pipes.spark.sql("SELECT body.* FROM typed_by_avro").first()[:] == ("c", 1.5, [])
    finally:
        pipes.spark.sql("DROP TABLE typed_by_avro")


def test_a_schema_that_cannot_be_read_is_refused_at_load(pipes, queue) -> None:
    with pytest.raises(Exception, match="at 'a': there is no type"):
        pipes.read(queue, bodyFormat="avro", bodySchema=json.dumps(record(("a", "strin"))))
