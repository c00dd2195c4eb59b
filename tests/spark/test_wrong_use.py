"""Everything that can be wrong is said before a row is written."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import shardq
from shardq.base.clock import from_datetime
from shardq.spark.browsing import BrowseStream
from shardq.spark.columns import headers_of
from shardq.spark.ddl import columns_of
from shardq.spark.options import (
    BrowseOptions,
    BrowseStreamOptions,
    ClaimStreamOptions,
    SendOptions,
    SettleOptions,
    check_reader,
    parse,
)
from shardq.spark.source import ShardqDataSource

DAY = "2026-01-01T00:00:00Z"


def message(call) -> str:
    with pytest.raises(Exception) as caught:
        call()
    return str(caught.value)


def source(url: str, queue: shardq.Queue, options: dict[str, str]) -> ShardqDataSource:
    """What Spark makes of the options, in a process of its own for each use."""
    return ShardqDataSource({"url": url, "queue": queue.name} | {n.lower(): v for n, v in options.items()})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"colour": "red"}, "option 'colour' is not known here"),
        ({"bundleMessages": "many"}, "option bundleMessages='many' cannot be used"),
        ({"bundleMessages": "0"}, "option bundleMessages='0' cannot be used"),
        ({"shardBy": "luck"}, "use one of rotate, key"),
        ({"inputOrder": "luck"}, "use one of any, stable"),
        ({"operation": "burn"}, "use one of ack, release, extend, dead_letter"),
        ({"bodyColumn": "text"}, "no column 'text' for the body"),
        ({"shardBy": "key"}, "needs a column 'key'"),
        (
            {"keyColumn": "body"},
            "option keyColumn='body' is not used with shardBy=rotate: add option shardBy=key",
        ),
        ({"throughputRowsPerSec": "0"}, "option throughputRowsPerSec='0' cannot be used"),
        ({"throughputRowsPerSec": "inf"}, "option throughputRowsPerSec='inf' cannot be used"),
        ({"bundleMessages": "1.5"}, "option bundleMessages='1.5' cannot be used: give a whole number"),
        ({"retrySeconds": "soon"}, "option retrySeconds='soon' cannot be used: give a number"),
        ({"truncate": "yes"}, "option truncate='yes' cannot be used: give true or false"),
        ({"idColumn": ""}, "option idColumn='' cannot be used"),
        ({"dedupeKeyColumn": ""}, "option dedupeKeyColumn='' cannot be used"),
        ({"dedupeKeyColumn": "k"}, "for the dedupe_key: they have body; name one with dedupeKeyColumn"),
        ({"subjectColumn": "body"}, "column 'body' cannot be the subject of a row: a queue takes body, id,"),
        ({"ackMode": "manual"}, "leave out ackmode='manual', which is for streams with mode=claim"),
        ({"queue": "no name!"}, "queue name 'no name!' cannot be used"),
        ({"url": "postgresq://host/queues"}, "URL scheme 'postgresq' is unknown: use one of"),
    ],
)
def test_a_wrong_option_of_the_sink_is_named_with_its_remedy(url, queue, options, text) -> None:
    rows = columns_of("rows", "body string")
    assert text in message(lambda: source(url, queue, options).writer(rows, overwrite=False))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("body int", "column 'body' is int, it cannot be the body"),
        ("text string", "no column 'body'"),
        ("Body string", "no column 'body' for the body: they have Body; name one with bodyColumn"),
        ("body string, priority string", "column 'priority' is string"),
        ("body string, due string", "column 'due' is string"),
        ("body string, headers string", "column 'headers' is string"),
        ("body string, colour string", "column 'colour' would be lost"),
    ],
)
def test_a_wrong_column_is_named_with_its_remedy(url, queue, columns, text) -> None:
    rows = columns_of("rows", columns)
    assert text in message(lambda: source(url, queue, {}).writer(rows, overwrite=False))


def test_what_is_wrong_is_said_by_spark_before_a_row_is_written(pipes, queue) -> None:
    wrong = pipes.bodies(10).selectExpr("body", "'x' as colour")
    assert "use one of rotate, key" in message(lambda: pipes.write(pipes.bodies(10), queue, shardBy="luck"))
    assert "column 'colour' would be lost" in message(lambda: pipes.write(wrong, queue))
    assert "is not a moment" in message(lambda: pipes.read(queue, since="yesterday").count())
    assert "use one of commit, manual" in message(lambda: pipes.stream(queue, ackMode="never"))
    assert queue.counts().ready == 0


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["cast(null as string) as body"], "column 'body' is null"),
        (["'x' as body", "10 as priority"], "priority 10"),
        (["repeat('x', 2000) as body"], "max_message_bytes"),
    ],
)
def test_a_row_that_cannot_be_sent_fails_the_job_before_its_partition_is_written(
    pipes, make_queue, columns, text
) -> None:
    queue = make_queue(max_message_bytes=1_000)
    rows = pipes.spark.range(0, 10, 1, 1).selectExpr(*columns)
    assert text in message(lambda: pipes.write(rows, queue))
    assert queue.counts().ready == 0


def test_overwrite_is_refused_unless_truncate_allows_it(pipes, queue, numbers_in) -> None:
    pipes.write(pipes.bodies(5), queue)
    assert "truncate" in message(lambda: pipes.write(pipes.bodies(5), queue, mode="overwrite"))
    assert queue.counts().ready == 5
    pipes.write(pipes.bodies(3, start=100), queue, mode="overwrite", truncate=True)
    assert numbers_in(queue) == [100, 101, 102]


def test_the_other_save_modes_are_refused(pipes, queue) -> None:
    for mode in ("error", "ignore"):
        assert "append" in message(lambda mode=mode: pipes.write(pipes.bodies(5), queue, mode=mode)).lower()
    assert queue.counts().ready == 0


def test_a_queue_that_does_not_exist_is_said_before_anything_else(pipes, queue) -> None:
    missing = pipes.options(queue) | {"queue": "nowhere"}
    writer = pipes.bodies(5).write.format("shardq").options(**missing).mode("append")
    assert "queue 'nowhere' does not exist" in message(writer.save)
    reader = pipes.spark.read.format("shardq").options(**missing).load()
    assert "queue 'nowhere' does not exist" in message(reader.count)


@pytest.mark.parametrize("missing", ["url", "queue"])
def test_a_missing_option_is_named(url, queue, missing) -> None:
    given = source(url, queue, {})
    del given.options[missing]
    rows = columns_of("rows", "body string")
    assert f"option '{missing}' is missing" in message(lambda: given.writer(rows, overwrite=False))


def test_credentials_of_the_url_are_not_in_the_error(pipes, queue) -> None:
    options = pipes.options(queue) | {"url": "nope://user:secret@host/x"}
    writer = pipes.bodies(5).write.format("shardq").options(**options).mode("append")
    text = message(writer.save)
    assert "URL scheme 'nope' is unknown" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"view": "everything"}, "use one of messages, shards, dead, history"),
        ({"since": "yesterday"}, "option since='yesterday' is not a moment"),
        ({"columns": "body,"}, "option columns has '', which the rows do not have: use id, body, priority"),
        ({"columns": "id, bodies"}, "option columns has 'bodies', which the rows do not have"),
        ({"columns": "id,body,id"}, "option columns has 'id' twice"),
        ({"columns": "headers"}, "add option('includeHeaders', 'true')"),
        ({"columns": "body", "includeBody": "false"}, "option columns has 'body'"),
        (
            {"columns": "body", "view": "shards"},
            "option columns has 'body', which the rows do not have: use shard",
        ),
        ({"since": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"maxMessagesPerTrigger": "5"}, "is not known here"),
    ],
)
def test_a_wrong_option_of_a_reader_is_named_with_its_remedy(url, queue, options, text) -> None:
    given = source(url, queue, options)
    assert text in message(lambda: given.reader(given.schema()))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ackMode": "never"}, "use one of commit, manual"),
        ({"leaseSeconds": "0"}, "option leaseSeconds='0' cannot be used"),
        ({"maxOffsetsPerTrigger": "5"}, "did you mean 'maxMessagesPerTrigger'?"),
        ({"ackMode": "manual", "view": "history"}, "option 'view' is not known here"),
        ({"since": DAY}, f"option since='{DAY}' does not say of what: add option view=history"),
        ({"until": DAY}, f"option until='{DAY}' does not say of what: add option view=history"),
        ({"mode": "claim", "since": DAY}, f"leave out since='{DAY}', which is for tables (spark.read) and"),
        ({"lagSeconds": "5"}, "leave out lagseconds='5', which is for streams with mode=browse"),
        ({"mode": "browse", "since": "yesterday"}, "option since='yesterday' is not a moment"),
        ({"mode": "browse", "until": "2026-01-01"}, "option until='2026-01-01' has no time zone"),
        ({"view": "messages", "since": DAY, "until": DAY}, "is not before until="),
        ({"view": "shards", "since": DAY}, f"option since='{DAY}' is not used with view=shards"),
        ({"mode": "browse", "view": "history"}, "option view=history: queue"),
        ({"mode": "watch"}, "use one of claim, browse"),
        ({"bodySchema": "a int"}, "option bodySchema='a int' is not used with bodyFormat=binary"),
        ({"checkpointLocation": "nope://a/b"}, "option checkpointLocation='nope://a/b' cannot be read"),
        ({"queue": "no name!"}, "queue name 'no name!' cannot be used"),
        ({"url": "postgresq://host/queues"}, "URL scheme 'postgresq' is unknown: use one of"),
        ({"maxPartitions": "2.5"}, "option maxPartitions='2.5' cannot be used: give a whole number"),
        ({"failOnLeaseLoss": "maybe"}, "option failOnLeaseLoss='maybe' cannot be used: give true or false"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named_with_its_remedy_when_it_is_loaded(
    url, queue, options, text
) -> None:
    assert text in message(source(url, queue, options).schema)


def test_a_stream_of_a_queue_with_limits_is_refused_when_it_starts(url, make_queue) -> None:
    given = source(url, make_queue(rate_limit="10/s"), {})
    assert "set it to None, or receive with consumers" in message(lambda: given.streamReader(given.schema()))


def test_a_stream_of_a_history_that_is_not_kept_is_refused(pipes, queue) -> None:
    assert "keeps no history" in message(lambda: pipes.stream(queue, mode="browse"))


@pytest.mark.parametrize(
    "options", [{"view": "messages"}, {"view": "messages", "since": DAY, "until": "2027-01-01T00:00:00Z"}]
)
def test_a_stream_that_is_told_what_to_look_at_receives_nothing(url, queue, options) -> None:
    given = source(url, queue, options)
    assert isinstance(given.streamReader(given.schema()), BrowseStream)


def test_a_stream_that_looks_ends_where_it_is_told_to(url, queue) -> None:
    queue.producer().send(b"x")
    given = source(
        url, queue, {"view": "messages", "since": "2020-01-01T00:00:00Z", "until": "2021-01-01T00:00:00Z"}
    )
    reader = given.streamReader(given.schema())
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end == {"until": from_datetime(datetime(2021, 1, 1, tzinfo=UTC))}
    assert [
        batch.num_rows
        for task in reader.partitions(reader.initialOffset(), end)
        for batch in reader.read(task)
    ] == []


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (ClaimStreamOptions, "maxmesagespertrigger", "maxMessagesPerTrigger"),
        (ClaimStreamOptions, "max_messages_per_trigger", "maxMessagesPerTrigger"),
        (ClaimStreamOptions, "maxoffsetspertrigger", "maxMessagesPerTrigger"),
        (ClaimStreamOptions, "minoffsetspertrigger", "minMessagesPerTrigger"),
        (ClaimStreamOptions, "maxtriggerdelay", "maxTriggerDelaySeconds"),
        (ClaimStreamOptions, "bodyshema", "bodySchema"),
        (ClaimStreamOptions, "kafka.bootstrap.servers", "url"),
        (ClaimStreamOptions, "subscribe", "queue"),
        (ClaimStreamOptions, "visibilitytimeout", "leaseSeconds"),
        (BrowseStreamOptions, "startingoffsets", "since"),
        (SendOptions, "batchsize", "bundleMessages"),
        (SendOptions, "bodycolum", "bodyColumn"),
        (SettleOptions, "reciptcolumn", "receiptColumn"),
        (SendOptions, "startingoffsets", None),
        (ClaimStreamOptions, "colour", None),
    ],
)
def test_an_option_that_is_nearly_known_or_has_another_name_elsewhere_is_suggested(kind, name, meant) -> None:
    given = {"url": "sqlite:///x.db", "queue": "q", "operation": "ack"} if kind is SettleOptions else {}
    text = message(lambda: parse(kind, given | {name: "x"}))
    assert (f"did you mean {meant!r}?" in text) if meant else ("did you mean" not in text)


USES: dict[type, dict[str, str]] = {
    BrowseOptions: {},
    ClaimStreamOptions: {},
    BrowseStreamOptions: {"view": "messages"},
    SendOptions: {},
    SettleOptions: {"operation": "ack"},
}
BAD = {
    "bool": ["yes", "2"],
    "int": ["-1", "0", "1.5", "many", "99999999999999999999"],
    "float": ["-1", "nan", "inf", "5s"],
}


@pytest.mark.parametrize("kind", USES)
def test_each_option_of_each_use_refuses_a_bad_value_and_names_itself_the_value_and_a_remedy(kind) -> None:
    for field in msgspec.structs.fields(kind):
        values = [bad for word in BAD if re.search(rf"\b{word}\b", str(field.type)) for bad in BAD[word]]
        literal = ["nonsense", " "] if "Literal" in str(field.type) else []
        for bad in ["", *values, *literal]:
            given = {"url": "sqlite:///x.db", "queue": "q"} | USES[kind] | {field.encode_name.upper(): bad}
            given = {name.lower(): value for name, value in given.items()}
            text = message(lambda given=given: parse(kind, given))
            shown = "..." if field.encode_name == "url" else repr(bad)
            assert f"option {field.encode_name}={shown}" in text
            assert ": give " in text or ": use one of " in text, text


def test_a_stream_takes_no_run_id(url, queue) -> None:
    rows = columns_of("rows", "body string")
    text = message(lambda: source(url, queue, {"runId": "nightly"}).streamWriter(rows, overwrite=False))
    assert "option runId='nightly' is for batch jobs: leave it out" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ackMode": "manual", "leaseSeconds": "60"}, None),
        ({"view": "dead", "includeBody": "false"}, None),
        ({"columns": "body, enqueued_at"}, None),
        ({"columns": "body,"}, None),
        ({"ackMode": "manual", "columns": "body"}, "option columns is without 'receipt'"),
        ({"ackMode": "manual", "columns": "receipt, body"}, None),
        ({"mode": "browse", "view": "messages", "lagSeconds": "1"}, None),
        ({"checkpointLocation": "x"}, None),
        ({"minMessagesPerTrigger": "10", "maxMessagesPerTrigger": "10", "minPartitions": "2"}, None),
        (
            {"minMessagesPerTrigger": "200000"},
            "minMessagesPerTrigger=200000 is above maxMessagesPerTrigger=100000",
        ),
        ({"minPartitions": "4", "maxPartitions": "2"}, "option minPartitions=4 is above maxPartitions=2"),
        ({"retrySeconds": "never"}, "option retrySeconds='never' cannot be used"),
        ({"mode": "browse", "view": "dead"}, "use one of messages, history"),
        ({"queue": ""}, "option queue='' cannot be used"),
        ({"bundleMessages": "5"}, "option 'bundlemessages' is not known here"),
    ],
)
def test_readers_are_checked_for_what_a_stream_or_a_table_can_take(options, text) -> None:
    given = {"url": "sqlite:///x.db", "queue": "q"} | options
    if text is None:
        check_reader(given)
    else:
        assert text in message(lambda: check_reader(given))


def test_a_paused_queue_takes_no_rows(pipes, queue) -> None:
    queue.pause(delivery=False, sends=True)
    assert "accepts no messages" in message(lambda: pipes.write(pipes.bodies(5), queue))


@pytest.mark.parametrize("packed", [b"\xc1", b"\x91\x01", b"\x81\xa1\xe9\x01", b"\x81\xa1a\xa1\xe9"])
def test_packed_headers_that_are_none_are_told_as_that(packed: bytes) -> None:
    with pytest.raises(shardq.InvalidMessage, match="no MessagePack map"):
        headers_of(packed)
