"""The jobs, as functions and as commands."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.spark.jobs.files import drain, load
from shardq.spark.jobs.job import QueueLocation
from shardq.spark.jobs.moves import migrate, replay, transform
from shardq.spark.jobs.report import report
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.rows import schema_of
from tests.spark.every_store import on_every_store


@pytest.fixture
def place(url):
    return lambda queue: QueueLocation(url, queue.name)


@pytest.fixture
def shell(spark, url):
    """Runs ``shardq spark`` in the session of the tests."""

    def run(*arguments: object) -> dict:
        result = CliRunner().invoke(main, ["--url", url, "spark", *map(str, arguments), "--json"])
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    return run


def test_files_of_every_format_are_loaded_row_by_row(spark, place, make_queue, tmp_path) -> None:
    rows = spark.createDataFrame([(number, f"n{number}") for number in range(50)], "id int, name string")
    for kind in ("parquet", "csv", "json"):
        queue = make_queue()
        path = str(tmp_path / kind)
        rows.write.format(kind).options(header="true").save(path)
        read = {"header": "true"} if kind == "csv" else {}
        assert load(spark, place(queue), path, format=kind, read_options=read).rows == 50
        bodies = [json.loads(message.body) for message in queue.peek(100)]
        assert sorted(body["name"] for body in bodies) == sorted(f"n{number}" for number in range(50))


def test_a_load_that_is_repeated_under_its_run_id_completes_and_duplicates_nothing(
    spark, place, queue, tmp_path
) -> None:
    path = str(tmp_path / "rows")
    spark.range(2_000).selectExpr("cast(id as string) as body").write.parquet(path)
    for _ in range(2):
        load(spark, place(queue), path, send_options={"runId": "load-1"})
    assert queue.counts().ready == 2_000


def test_a_load_that_can_be_repeated_promises_no_order(place, queue) -> None:
    options = {"runId": "load-1", "inputOrder": "stable"}
    with pytest.raises(shardq.InvalidSetting, match="leave one of them out"):
        load(None, place(queue), "rows", send_options=options)  # type: ignore[arg-type]


@on_every_store
def test_a_drain_writes_every_message_once_and_goes_on_where_it_was(spark, place, queue, tmp_path) -> None:
    out = str(tmp_path / "out")
    with queue.producer() as producer:
        producer.send_many([b"%d" % number for number in range(1_000)])
        assert drain(spark, place(queue), out).messages == 1_000
        producer.send_many([b"%d" % number for number in range(1_000, 1_200)])
        assert drain(spark, place(queue), out).messages == 200
    rows = spark.read.parquet(out)
    assert sorted(int(bytes(row.body)) for row in rows.select("body").collect()) == list(range(1_200))
    every = schema_of(ClaimStreamOptions(url="u", queue="q")).names
    assert rows.columns == [name for name in every if name not in {"receipt", "state"}]
    assert queue.counts() == shardq.QueueCounts(0, 0, 0, 0, None)


def test_a_drain_loses_no_large_body(spark, place, queue, tmp_path) -> None:
    out = str(tmp_path / "out")
    with queue.producer() as producer:
        producer.send_many([b"%d" % number for number in range(10)])
        large = producer.send_stream(io.BytesIO(b"x" * 100))
    with pytest.raises(Exception, match=f"message {large} has a large body"):
        drain(spark, place(queue), out)
    assert queue.get(large).large is not None
    queue.remove(large)
    assert drain(spark, place(queue), out).messages == 10
    assert spark.read.parquet(out).count() == 10


def test_a_drain_of_structured_bodies_loses_no_large_body(spark, place, queue, tmp_path) -> None:
    out, schema = str(tmp_path / "out"), {"bodyFormat": "json", "bodySchema": "number int"}
    with queue.producer() as producer:
        producer.send_many([b'{"number": 1}', b"no JSON"])
        large = producer.send_stream(io.BytesIO(b'{"number": 2}'))
    with pytest.raises(Exception, match=f"message {large} has a large body"):
        drain(spark, place(queue), out, stream_options=schema)
    assert queue.get(large).large is not None
    queue.remove(large)
    assert drain(spark, place(queue), out, stream_options=schema).messages == 2
    found = spark.read.parquet(out).collect()
    assert sorted((row.body and row.body.number, row.corrupt_body) for row in found if row.body) == [
        (1, None)
    ]
    assert [bytes(row.corrupt_body) for row in found if row.body is None] == [b"no JSON"]


@pytest.mark.parametrize(
    "given",
    [
        {"bodyFormat": "text", "bodyMode": "failfast"},
        {"bodyFormat": "json", "bodySchema": "number int", "bodyMode": "failfast"},
        {"columns": "body,enqueued_at"},
    ],
)
def test_no_choice_of_columns_and_bodies_lets_a_drain_lose_a_large_body(
    spark, place, queue, tmp_path, given: dict[str, str]
) -> None:
    with queue.producer() as producer:
        large = producer.send_stream(io.BytesIO(b'{"number": 2}'))
    with pytest.raises(Exception, match="has a large body"):
        drain(spark, place(queue), str(tmp_path / "out"), stream_options=given)
    assert queue.get(large).large is not None


def test_a_drain_that_cannot_tell_large_bodies_from_others_is_refused(spark, place, queue, tmp_path) -> None:
    given = {"bodyFormat": "json", "bodySchema": "number int", "columns": "id,body"}
    with pytest.raises(shardq.InvalidSetting, match="corrupt_body"):
        drain(spark, place(queue), str(tmp_path / "out"), stream_options=given)


def test_a_transform_changes_messages_on_their_way(spark, place, make_queue, tmp_path) -> None:
    source, target = make_queue(), make_queue()
    with source.producer() as producer:
        producer.send_many([b"%d" % number for number in range(100)], headers={"kept": 1})

    def double_the_even(rows):
        number = "cast(cast(body as string) as int)"
        return rows.where(f"{number} % 2 = 0").selectExpr(
            "id", f"cast({number} * 2 as string) as body", "headers"
        )

    checkpoint = str(tmp_path / "checkpoint")
    done = transform(spark, place(source), place(target), double_the_even, checkpoint=checkpoint)
    assert done.messages == 100
    found = target.peek(1_000)
    assert sorted(int(message.body) for message in found) == [number * 2 for number in range(0, 100, 2)]
    assert {message.headers["kept"] for message in found} == {1}
    assert source.counts().ready == source.counts().in_flight == 0


def test_the_history_is_replayed_once_under_a_run_id(spark, place, make_queue) -> None:
    source, target = make_queue(history_retention=3_600.0), make_queue()
    with source.producer() as producer, source.consumer() as consumer:
        producer.send_many([b"x"] * 300, headers={"n": 1}, priority=3)
        for batch in consumer.batches(100, wait=0):
            batch.ack()
    first = replay(spark, place(source), place(target), run_id="again")
    replay(spark, place(source), place(target), run_id="again")
    assert first.messages == 300
    found = target.peek(1_000)
    assert len(found) == 300
    assert {(message.priority, message.headers["n"]) for message in found} == {(3, 1)}


@on_every_store
def test_a_migration_copies_everything_and_compares_it(spark, place, client, make_queue) -> None:
    source = make_queue(max_deliveries=7)
    with source.producer(bundle_messages=50) as producer:
        producer.send_many([b"%d" % number for number in range(700)], headers={"n": 1, "b": b"\x00"})
        producer.send(b"delayed", delay=3_600, priority=1)
        producer.send(b"keyed", dedupe_key="k")
    held = source.consumer().receive(60)
    assert len(held) == 60
    target = QueueLocation(place(source).url, f"{source.name}-copy")
    moved = migrate(spark, place(source), target)
    try:
        copy = client.queue(target.queue)
        assert moved.equal
        assert moved.messages == 702
        assert copy.settings.max_deliveries == 7
        assert (copy.counts().ready, copy.counts().delayed) == (701, 1)
        assert migrate(spark, place(source), target, resume=True).equal
        assert copy.counts().ready == 701
        with pytest.raises(shardq.InvalidSetting, match="holds messages already"):
            migrate(spark, place(source), target)
        copy.remove(next(message.id for message in copy.peek(1)))
        assert not migrate(spark, place(source), target, resume=True).equal
    finally:
        client.delete_queue(target.queue)


@on_every_store
def test_a_migration_goes_from_any_store_to_another(spark, url, place, make_queue, tmp_path) -> None:
    """From the store to SQLite, and from there back."""
    source = make_queue()
    with source.producer(bundle_messages=50) as producer:
        producer.send_many([b"%d" % number for number in range(500)], headers={"n": 1})
        producer.send(b"delayed", delay=3_600)
    away = QueueLocation(f"sqlite:///{tmp_path}/away.db", "away")
    back = QueueLocation(url, f"{source.name}-back")
    with shardq.connect(url) as client:
        try:
            assert migrate(spark, place(source), away).equal
            assert migrate(spark, away, back).equal
            counts = client.queue(back.queue).counts()
            assert (counts.ready, counts.delayed) == (500, 1)
        finally:
            client.delete_queue(back.queue)


def test_a_report_shows_every_shard(spark, place, make_queue, tmp_path) -> None:
    queue = make_queue(history_retention=3_600.0)
    with queue.producer(bundle_messages=10) as producer, queue.consumer() as consumer:
        producer.send_many([b"x"] * 400)
        consumer.receive(100).ack()
    made = report(spark, place(queue), tmp_path / "report")
    assert made.survey.total("ready") == 300
    assert made.survey.total("processed") == 100
    assert made.survey.skew is not None
    assert made.survey.skew >= 1
    assert all(shard.age.median >= 0 for shard in made.survey.shards if shard.ready)
    assert any(shard.latency for shard in made.survey.shards)
    page = (tmp_path / "report" / "report.html").read_text()
    assert queue.name in page
    assert page.count("<img") == len(made.pictures) == 4
    for picture in made.pictures:
        assert Path(picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_report_of_an_empty_queue_is_empty(spark, place, queue, tmp_path) -> None:
    assert report(spark, place(queue), tmp_path / "report").survey.shards == ()


def test_the_commands_do_what_the_functions_do(spark, shell, make_queue, tmp_path) -> None:
    queue, other = make_queue(history_retention=600.0), make_queue()
    (tmp_path / "lines.txt").write_text("one\ntwo\nthree\n")
    loaded = shell("load", queue.name, tmp_path / "lines.txt", "--format", "text", "--body", "value")
    assert loaded == {"rows": 3, "queue": queue.name}
    changed = shell(
        "transform", queue.name, other.name, "--select", "id", "--select", "upper(cast(body as string)) as body",
        "--where", "cast(body as string) <> 'two'", "--checkpoint", tmp_path / "checkpoint",
    )  # fmt: skip
    assert changed["messages"] == 3
    assert sorted(message.body for message in other.peek(10)) == [b"ONE", b"THREE"]
    assert shell("replay", queue.name, other.name)["messages"] == 3
    assert shell("report", other.name, "--output", tmp_path / "report")["survey"]["queue"] == other.name
    assert shell("migrate", other.name, queue.name)["equal"]
    drained = shell("drain", other.name, tmp_path / "out", "--select", "cast(body as string) as body")
    assert drained["messages"] == 5
    assert {row.body for row in spark.read.parquet(str(tmp_path / "out")).collect()} >= {
        "ONE",
        "THREE",
        "two",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["drain", "nowhere", "out"], 3, "shardq: queue_not_found: queue 'nowhere' does not exist"),
        (
            ["drain", "QUEUE", "out", "--set", "colour=red"],
            2,
            "shardq: invalid_setting: option 'colour' is not known",
        ),
        (["load", "QUEUE", "/nowhere/at/all"], 1, "shardq: job_failed: [PATH_NOT_FOUND]"),
        (["load", "QUEUE", "x", "--set", "colour"], 2, "shardq: usage: "),
        (["replay", "QUEUE", "QUEUE"], 2, "keeps no history"),
        (["transform", "QUEUE", "nowhere", "--checkpoint", "c"], 3, "queue 'nowhere' does not exist"),
        (["migrate", "QUEUE", "QUEUE"], 2, "is source and target"),
    ],
)
def test_what_goes_wrong_in_a_job_is_one_line_and_its_exit_code(
    spark, url, queue, tmp_path, monkeypatch, arguments, code, text
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [queue.name if word == "QUEUE" else word for word in arguments]
    words = [str(tmp_path / word) if word in ("out", "c") else word for word in words]
    result = CliRunner().invoke(main, ["--url", url, "spark", *words])
    assert text in result.stderr
    assert result.exit_code == code
    assert result.stderr.strip().splitlines()[-1].startswith("shardq: ")
