"""What `shardq doctor` says of MongoDB: nothing where all is well, and each fault with a remedy that ends it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pymongo
import pytest
from click.testing import CliRunner
from pymongo.database import Database

import shardq
from shardq.cli.main import main
from shardq.storage.requests import Finding
from tests.local_server import local_server

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("test_mongodb_doctor")]


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    """A server that asks for a login, with a queue that is in use."""
    with local_server("mongodb", "--authenticated") as (url, _):
        with shardq.connect(url) as client:
            queue = client.create_queue("orders", shards=2, time_shards=1, history_retention=60)
            with queue.producer() as producer, queue.consumer() as consumer:
                producer.send_many([b"one", b"two"])
                producer.send(b"three", group="a")
                consumer.receive(1, wait=5).ack()
        yield url


@pytest.fixture
def database(guarded_url: str) -> Iterator[Database]:
    with pymongo.MongoClient(guarded_url) as client:
        yield client.get_default_database()


def as_user(database: Database, url: str, *roles: object) -> str:
    """The URL with a new user who has these roles, of the names of roles or of their privileges."""
    name = f"user{os.urandom(6).hex()}"
    made = []
    for number, role in enumerate(roles):
        if isinstance(role, str):
            made.append(role)
            continue
        database.command("createRole", f"{name}{number}", privileges=[role], roles=[])
        made.append(f"{name}{number}")
    database.command("createUser", name, pwd="secret", roles=made)
    return url.replace("root:", f"{name}:").replace("=admin", f"={database.name}")


def findings(url: str) -> dict[str, Finding]:
    with shardq.connect(url, retry_seconds=2.0) as client:
        return {finding.name: finding for finding in client.diagnose()}


def test_a_queue_in_use_is_well_for_root_and_for_a_user_with_the_roles_that_are_asked_for(
    database: Database, guarded_url: str
) -> None:
    for url in (guarded_url, as_user(database, guarded_url, "readWrite", "dbAdmin")):
        found = findings(url)
        assert {"rights", "indexes", "schema"} <= found.keys()
        assert [each for each in found.values() if not each.ok or each.warning] == []
        assert "history are not checked" in found["indexes"].value


@pytest.mark.parametrize(
    ("roles", "missing"),
    [
        (["read"], {"insert", "update", "remove", "createIndex", "collMod"}),
        (["readWrite"], {"collMod"}),
        (["read", "dbAdmin"], {"insert", "update", "remove"}),
    ],
)
def test_what_a_user_may_not_do_is_named(
    database: Database, guarded_url: str, roles: list[str], missing: set[str]
) -> None:
    found = findings(as_user(database, guarded_url, *roles))["rights"]
    assert not found.ok
    assert set(found.value.removeprefix("without ").split(", ")) >= missing
    assert "readWrite and dbAdmin" in found.remedy


def test_a_right_to_one_collection_is_none_to_the_database(database: Database, guarded_url: str) -> None:
    actions = ["insert", "update", "remove", "createCollection", "createIndex", "dropCollection", "collMod"]
    one = {"resource": {"db": database.name, "collection": "shardq.queue"}, "actions": actions}
    assert "insert" in findings(as_user(database, guarded_url, "read", one))["rights"].value


def test_a_user_without_any_right_is_told_which_are_missing(database: Database, guarded_url: str) -> None:
    found = findings(as_user(database, guarded_url))
    assert found["reachable"].ok
    assert not found["rights"].ok
    shell = CliRunner().invoke(main, ["--url", as_user(database, guarded_url), "doctor"])
    assert shell.exit_code in (1, 4)
    assert "readWrite and dbAdmin" in shell.stdout


def test_indexes_that_are_missing_are_named_and_a_sweep_makes_them(
    database: Database, guarded_url: str
) -> None:
    shards = [name for name in database.list_collection_names() if name.startswith("orders")]
    grouped = [name for name in shards if ":10000:" in name]
    assert grouped
    for name in shards:
        database[name].drop_indexes()
    found = findings(guarded_url)["indexes"]
    assert not found.ok
    assert f"claim, finished, group of {grouped[0]}" in found.value or "more" in found.value
    assert "shardq sweep --all" in found.remedy
    shell = CliRunner().invoke(main, ["--url", guarded_url, "sweep", "--all"])
    assert shell.exit_code == 0, shell.output
    assert findings(guarded_url)["indexes"].ok


@pytest.mark.parametrize("name", ["claim", "finished"])
def test_one_missing_index_is_enough(database: Database, guarded_url: str, name: str) -> None:
    shard = next(each for each in database.list_collection_names() if each.startswith("orders"))
    database[shard].drop_index(name)
    found = findings(guarded_url)["indexes"]
    assert (found.ok, found.value) == (False, f"missing: {name} of {shard}")
    with shardq.connect(guarded_url) as client:
        client.queue("orders").sweep()
    assert findings(guarded_url)["indexes"].ok


@pytest.mark.parametrize("name", ["shardq.dedupe", "shardq.consumer"])
def test_the_remedy_of_a_missing_index_of_shardqs_own_collections_makes_it(
    database: Database, guarded_url: str, name: str
) -> None:
    before = database[name].index_information()
    database[name].drop_index("gone")
    found = findings(guarded_url)["indexes"]
    assert found.value == f"missing: gone of {name}"
    made = re.fullmatch(r"in mongosh run `db\.getCollection\('(.+)'\)\.createIndex\((.+)\)`", found.remedy)
    assert made is not None
    key, options = json.loads(f"[{made[2]}]")
    database[made[1]].create_index(list(key.items()), **options)
    assert database[name].index_information() == before
    assert findings(guarded_url)["indexes"].ok


def test_what_is_left_of_a_queue_that_was_deleted_needs_no_indexes(
    database: Database, guarded_url: str
) -> None:
    database.create_collection("gone@0123456789:0:0")
    assert findings(guarded_url)["indexes"].ok
    database.drop_collection("gone@0123456789:0:0")
