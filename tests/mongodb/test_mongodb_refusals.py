"""What the store says when it cannot do what is asked: a typed error with the remedy, without the password."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pymongo
import pymongo.errors
import pytest
from bson.binary import Binary
from pymongo.database import Database

import shardq
from shardq.base.shard import Shard
from shardq.errors import (
    InvalidName,
    InvalidSetting,
    MessageTooLarge,
    OutcomeUnknown,
    SchemaMismatch,
    ShardqError,
    StoreUnavailable,
    UnsupportedByStore,
)
from shardq.storage.mongodb.faults import translate
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.mongodb.url import parse
from shardq.storage.requests import Acknowledge, Append, Claim, Forward, QueueRecord, Span
from shardq.tasks import Task, Tasks, chain, group
from shardq.testing import BundleFactory
from shardq.testing.seam import store_of
from tests.local_server import local_server

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("test_mongodb_refusals")]

QUICK = "serverSelectionTimeoutMS=300"


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    with local_server("mongodb", "--members", "0", "--authenticated") as (url, _):
        yield url


def of_new_user(url: str, *, roles: list[str]) -> str:
    """The URL with a user of no other test, who may do only so much."""
    name = f"user{os.urandom(6).hex()}"
    with pymongo.MongoClient(url) as client:
        client.shardq.command("createUser", name, pwd="secret", roles=roles)
    return url.replace("root:", f"{name}:").replace("=admin", "=shardq")


@pytest.mark.parametrize("code", [6, 7, 26, 43, 89, 133, 175, 237, 276, 9001, 11601, 12587])
@pytest.mark.parametrize("writing", [False, True])
def test_what_passes_may_be_repeated(code: int, writing: bool) -> None:
    error = translate(
        pymongo.errors.OperationFailure("operation was interrupted", code), "db", writing=writing
    )
    assert error.retryable
    assert isinstance(error, OutcomeUnknown if writing else StoreUnavailable)


@pytest.mark.parametrize("code", [11602, 11600])
def test_a_write_that_was_interrupted_may_be_done_in_part(code: int) -> None:
    error = pymongo.errors.NotPrimaryError("operation was interrupted", {"code": code})
    assert isinstance(translate(error, "db", writing=True), OutcomeUnknown)
    assert isinstance(translate(error, "db", writing=False), StoreUnavailable)


@pytest.mark.parametrize(
    ("stored", "outcome"),
    [(0, StoreUnavailable), (1, OutcomeUnknown)],
    ids=["nothing is stored", "a part is stored"],
)
def test_an_insert_that_ends_half_way_does_not_say_that_nothing_is_stored(
    stored: int, outcome: type[ShardqError], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server that steps down between the documents of an insert
    failed = {"index": stored, "code": 189, "errmsg": "Not primary while writing"}
    monkeypatch.setattr(ShardRows, "_write", lambda *_: {"n": stored, "writeErrors": [failed]})
    rows = ShardRows(MongoStore(parse("mongodb://host/db")).session, Shard("q", 0, 0))
    # Then whoever sends is told whether it may be stored
    with pytest.raises(outcome) as raised:
        rows.insert([{}, {}], Binary(bytes(16), 4))
    assert raised.value.retryable


@pytest.fixture
def refused(open_store: Callable[..., MongoStore]) -> Callable[[str], ShardqError]:
    def use(url: str) -> ShardqError:
        with pytest.raises(ShardqError) as raised:
            open_store(url).create_queue(QueueRecord("q", b"", 1))
        assert "secret" not in str(raised.value)
        assert "wrong" not in repr(raised.value)
        return raised.value

    return use


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://user:secret@/shardq",
        "mongodb://user:secret@host",
        "mongodb://user:secret@host/",
        "mongodb://user:secret@host/admin",
        "mongodb://user:secret@host/a.b",
        "mongodb://user:secret@host/a$b",
        "mongodb://user:sec@ret@host/shardq",
        "mongodb://user:secret@host:port/shardq",
        "mongodb://user:secret@host/shardq?readPreference=nonsense",
        "mongodb://user:secret@host/shardq?noSuchOption=1",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_the_password(url: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        parse(url)
    assert "sec" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_option_that_is_unknown_is_named_unless_it_may_be_a_part_of_the_password() -> None:
    with pytest.raises(InvalidSetting, match="option 'noSuchOption' is unknown"):
        parse("mongodb://user:secret@host/shardq?noSuchOption=1")
    with pytest.raises(InvalidSetting) as raised:
        parse("mongodb://user:pass/word?secret=1@host/shardq")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://host/shardq",
        "mongodb://h1:27017,h2:27018/shardq?replicaSet=rs0&w=2&journal=true",
        "mongodb://user:p%40ss@host/shardq?authSource=admin&tls=true",
        "mongodb://[::1]:27017/shardq",
        "mongodb+srv://user:secret@cluster.example.net/shardq?retryWrites=true",
    ],
)
def test_every_form_of_url_is_taken_and_shown_without_credentials(url: str) -> None:
    address = parse(url)
    assert address.database == "shardq"
    assert "secret" not in repr(address)
    assert "p%40ss" not in str(address)


def test_an_unreachable_server_is_named_with_what_to_check(refused: Callable[[str], ShardqError]) -> None:
    error = refused(f"mongodb://user:secret@127.0.0.1:9/shardq?{QUICK}")
    assert isinstance(error, StoreUnavailable)
    assert error.retryable
    assert "127.0.0.1:9" in str(error)
    assert "check hosts" in str(error)
    assert str(error).endswith("[Errno 111] Connection refused)")


def test_a_wrong_password_is_told(refused: Callable[[str], ShardqError], guarded_url: str) -> None:
    error = refused(guarded_url.replace("secret", "wrong"))
    assert isinstance(error, StoreUnavailable)
    assert not error.retryable
    assert "check user, password and authSource" in str(error)


def test_a_login_without_rights_is_told_which_it_needs(
    refused: Callable[[str], ShardqError], guarded_url: str
) -> None:
    error = refused(of_new_user(guarded_url, roles=["read"]))
    assert isinstance(error, StoreUnavailable)
    assert not error.retryable
    assert "readWrite and dbAdmin" in str(error)


def test_a_login_without_user_is_refused(refused: Callable[[str], ShardqError], guarded_url: str) -> None:
    error = refused(guarded_url.replace("root:secret@", "").replace("?authSource=admin", ""))
    assert isinstance(error, StoreUnavailable)
    assert not error.retryable


def test_the_roles_that_are_named_are_enough(open_store: Callable[..., MongoStore], guarded_url: str) -> None:
    store = open_store(of_new_user(guarded_url, roles=["readWrite", "dbAdmin"]))
    shard = Shard("q", 0, 0)
    assert store.create_queue(QueueRecord("q", b"", 1))
    bundle = BundleFactory(store.now)(2)
    store.append(Append(shard, (bundle,)))
    store.claim(Claim(shard, bytes(16), 2, 60_000_000))
    store.acknowledge(Acknowledge(shard, (Span(bundle.id, 0, 2, bytes(16)),)))
    assert store.drop_if_empty(shard)
    assert all(finding.ok for finding in store.diagnose())
    assert store.drop_queue("q")


def test_a_wrong_replica_set_is_told(refused: Callable[[str], ShardqError], mongodb_url: str) -> None:
    error = refused(f"{mongodb_url.partition('?')[0]}?replicaSet=another&{QUICK}")
    assert isinstance(error, StoreUnavailable)
    assert "correct replicaSet" in str(error)


def test_a_schema_of_an_earlier_or_later_version_is_told(
    open_store: Callable[..., MongoStore], mongodb_url: str, store: MongoStore
) -> None:
    other = mongodb_url.replace("/shardq", "/shardq_versions")
    with pytest.raises(SchemaMismatch, match="no schema of shardq yet"):
        open_store(other).load_queue("q")
    open_store(other).create_schema()
    with pymongo.MongoClient(other) as client:
        client["shardq_versions"]["shardq.schema"].update_one({}, {"$set": {"version": 99}})
        with pytest.raises(SchemaMismatch, match="upgrade shardq"):
            open_store(other).load_queue("q")
        client.drop_database("shardq_versions")


@pytest.mark.parametrize("version", [None, 1, 99], ids=["none", "earlier", "later"])
@pytest.mark.parametrize("counted", [False, True], ids=["new", "counted"])
def test_a_consumer_that_is_refused_for_the_schema_is_not_counted(
    open_store: Callable[..., MongoStore], mongodb_url: str, version: int | None, counted: bool
) -> None:
    """A client may be at work while the schema changes."""
    other = mongodb_url.replace("/shardq", "/shardq_refused")
    client = open_store(other)
    assert client.create_queue(QueueRecord("q", b"", 1))
    assert client.load_queue("q") is not None
    if counted:
        assert client.register_consumer(["q"], "c", 60_000_000) != (None,)
    with pymongo.MongoClient(other) as driver:
        database = driver["shardq_refused"]
        database["shardq.schema"].delete_many({})
        if version is not None:
            database["shardq.schema"].insert_one({"_id": "shardq", "version": version})
        with pytest.raises(SchemaMismatch):
            client.register_consumer(["q"], "c", 60_000_000)
        rows = database["shardq.consumer"].count_documents({})
        driver.drop_database("shardq_refused")
    assert rows == 0


def test_a_bundle_above_16_mib_is_too_large_and_nothing_is_stored(store: MongoStore, shard: Shard) -> None:
    bundle = BundleFactory(store.now)(3, data=bytes(17 << 20))
    with pytest.raises(MessageTooLarge, match="fewer or smaller messages"):
        store.append(Append(shard, (bundle,)))
    assert store.count(shard).ready == 0


def test_a_name_that_is_too_long_for_a_collection_of_the_database_is_refused(
    open_store: Callable[..., MongoStore], mongodb_url: str
) -> None:
    name = "d" * 50
    store = open_store(re.sub(rf"/{parse(mongodb_url).database}(?=\?|$)", f"/{name}", mongodb_url))
    with pytest.raises(InvalidName, match="183 are the most"):
        store.create_queue(QueueRecord("x" * 184, b"", 1))
    with pytest.raises(InvalidName, match="183 are the most"):
        store.create_queue(QueueRecord("x@" * 62, b"", 1))
    assert store.create_queue(QueueRecord("x" * 183, b"", 1))
    shard = Shard("x" * 183, 2_999, 0)
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    assert store.count(shard).ready == 1
    with pymongo.MongoClient(mongodb_url) as client:
        client.drop_database(name)


def test_a_name_that_the_server_keeps_for_itself_is_refused(store: MongoStore) -> None:
    with pytest.raises(InvalidName, match=r"system\."):
        store.create_queue(QueueRecord("system.profile", b"", 1))


def test_a_forward_to_another_shard_of_a_standalone_server_is_refused_with_the_remedy(
    store: MongoStore, shard: Shard
) -> None:
    if store.capabilities.forward_across_shards:
        pytest.skip("this is a replica set")
    bundle = BundleFactory(store.now)()
    request = Forward(Acknowledge(shard, ()), Append(Shard(shard.queue, 0, 1), (bundle,)))
    with pytest.raises(UnsupportedByStore, match="replica set of one member"):
        store.forward(request)


@pytest.mark.parametrize(
    "send",
    [
        lambda add: add.options(group="g").send(1),
        lambda add: add.options(group="g").signature(1).schedule("s", every=60),
        lambda add: chain(add.signature(1), add.options(group="g").signature(2)).send(),
        lambda add: group(add.options(group="g").signature(number) for number in range(250)).send(),
    ],
    ids=["send", "schedule", "workflow", "large group"],
)
def test_a_task_of_a_group_that_a_standalone_server_refuses_creates_no_queue(
    mongodb_url: str, send: Callable[[Task[[int], int, int]], object]
) -> None:
    queue, tasks = f"t{os.urandom(6).hex()}", Tasks()

    @tasks.task(queue=queue)
    def add(number: int) -> int:
        return number

    with shardq.connect(mongodb_url) as client, shardq.connect(mongodb_url) as fresh:
        client.ping()
        is_refused = not store_of(client).capabilities.groups
        tasks.bind(fresh)  # which has not asked the server yet
        with pytest.raises(UnsupportedByStore, match="'g'") if is_refused else nullcontext():
            send(add)
        found = client.queues(queue)
        for name in found:
            client.delete_queue(name)
    assert (not found) is is_refused


def test_the_password_is_in_no_log(
    refused: Callable[[str], ShardqError], guarded_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    refused(guarded_url.replace("secret", "wrong-one"))
    assert "wrong-one" not in caplog.text


def test_too_many_shards_are_refused(
    store: MongoStore, shard: Shard, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.storage.mongodb.collections.MOST", 0)
    make = BundleFactory(store.now)
    with pytest.raises(InvalidSetting, match="delete queues"):
        for number in range(2):
            store.append(Append(Shard(shard.queue, 0, number), (make(),)))


def test_the_schema_is_json_that_names_every_collection() -> None:
    files = sorted((Path(__file__).parents[2] / "schema" / "mongodb").iterdir())
    named = {each["name"] for file in files for each in msgspec.json.decode(file.read_bytes())["collections"]}
    assert {"shardq.queue", "shardq.shard", "shardq.signal", "{shard}"} <= named


def test_a_queue_whose_dead_letter_queue_cannot_have_its_name_leaves_nothing(mongodb_url: str) -> None:
    with shardq.connect(mongodb_url) as client:
        kept = client.create_queue("kept")
        longest = "a" * bisect_left(
            range(300), True, lo=40, key=lambda count: not _can_have(client, "a" * count)
        )
        for name in ("system", longest):
            with pytest.raises(InvalidName):
                client.create_queue(name)
        with pytest.raises(InvalidName):
            kept.alter(dead_letter_queue="system.dead")
        assert kept.settings.dead_letter_queue is None
        assert client.queues() == ("kept", "kept.dead")
        client.create_queue("system", max_deliveries=None)


def _can_have(client: shardq.Client, name: str) -> bool:
    try:
        client.create_queue(name)
    except InvalidName:
        return False
    client.delete_queue(name)
    client.delete_queue(f"{name}.dead")
    return True
