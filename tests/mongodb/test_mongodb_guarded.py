"""A server that asks for a password and for certificates, and what clients without them are told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest

import shardq
from shardq.errors import InvalidSetting, ShardqError, StoreUnavailable
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.mongodb.url import parse
from shardq.storage.requests import QueueRecord
from tests.certificates import write_certificates
from tests.local_server import local_server

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("test_mongodb_guarded")]

PASSWORD = "se/cr@t:of?ours"
QUOTED = quote_plus(PASSWORD)


class Guarded:
    """The server, and URLs for it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._hosts, self._folder = url.partition("@")[2].partition("/")[0], folder
        self._set = "replicaSet=shardq&" if "replicaSet" in url else ""
        self.root = self.url(user="root", password="secret", source="admin")

    def url(
        self,
        *,
        user: str = "shop",
        password: str = QUOTED,
        source: str = "shardq",
        ca: str = "ca.pem",
        client: str = "client.pem",
        tls: bool = True,
    ) -> str:
        login = f"{user}:{password}@" if user else ""
        options = f"{self._set}serverSelectionTimeoutMS=2000" + (f"&authSource={source}" if user else "")
        if tls:
            options += f"&tls=true&tlsCAFile={self._folder}/{ca}"
            options += f"&tlsCertificateKeyFile={self._folder}/{client}" if client else ""
        return f"mongodb://{login}{self._hosts}/shardq?{options}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    with local_server("mongodb", "--authenticated", "--tls", str(folder)) as (url, _):
        server = Guarded(url, folder)
        with pymongo.MongoClient(server.root) as client:
            database = client["shardq"]
            for user, roles in {
                "shop": ["readWrite", "dbAdmin"],
                "clerk": ["readWrite"],
                "guest": [],
            }.items():
                database.command("createUser", user, pwd=PASSWORD, roles=roles)
        yield server


def refusal(url: str) -> ShardqError:
    """What is said to one who creates a queue; the password never is."""
    store = MongoStore(parse(url))
    with pytest.raises(ShardqError) as caught:
        store.create_queue(QueueRecord("q", b"", 1))
    findings = store.diagnose()
    assert not all(finding.ok for finding in findings)
    store.close()
    told = f"{caught.value!r} {caught.value.__cause__!r} {findings} {store.session.address!r}"
    assert PASSWORD not in told
    assert QUOTED not in told
    return caught.value


def test_a_client_with_password_and_certificate_works(guarded: Guarded) -> None:
    with shardq.connect(guarded.url()) as client:
        queue = client.create_queue("letters")
        with queue.producer() as producer:
            producer.send(b"dear sir")
        with queue.consumer() as consumer:
            message = consumer.receive(1, wait=5)[0]
            assert message.body == b"dear sir"
            message.ack()
        assert all(finding.ok for finding in client.diagnose())
        client.delete_queue("letters")


@pytest.mark.parametrize(
    "login", [{"password": "wrong"}, {"user": "nobody"}, {"source": "admin"}, {"user": "", "password": ""}]
)
def test_a_wrong_login_is_refused_for_good(
    guarded: Guarded, login: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        error = refusal(guarded.url(**login))
    assert isinstance(error, StoreUnavailable)
    assert not error.retryable
    assert "authSource" in str(error)
    assert PASSWORD not in caplog.text
    assert QUOTED not in caplog.text


@pytest.mark.parametrize("user", ["guest", "clerk"])
def test_a_user_without_rights_is_told_which_are_needed(guarded: Guarded, user: str) -> None:
    with shardq.connect(guarded.url()) as client:
        client.create_schema()
    store = MongoStore(parse(guarded.url(user=user)))
    with pytest.raises(StoreUnavailable, match="readWrite and dbAdmin") as caught:
        store.create_queue(QueueRecord("q", b"", 1))
        store.create_shards(shardq.QueueSettings(shards=1, time_shards=1).layout.all_shards("q"))
    assert not caught.value.retryable
    store.close()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ca": "other.pem"}, "CERTIFICATE_VERIFY_FAILED"),
        ({"client": ""}, "TLS"),
        ({"client": "stranger.pem"}, "TLS"),
        ({"tls": False}, "TLS"),
    ],
)
def test_who_does_not_encrypt_as_the_server_asks_is_told_to_check_tls(
    guarded: Guarded, changes: dict[str, Any], told: str
) -> None:
    error = str(refusal(guarded.url(**changes)))
    assert "TLS" in error
    assert told in error


@pytest.mark.parametrize("option", ["ca", "client"])
def test_a_certificate_that_cannot_be_read_is_named(guarded: Guarded, option: str) -> None:
    changes: Any = {option: "nowhere.pem"}
    with pytest.raises(InvalidSetting, match=r"nowhere\.pem"):
        parse(guarded.url(**changes))
