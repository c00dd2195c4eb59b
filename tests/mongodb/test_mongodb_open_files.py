"""A server that may open few files, which ends itself when it needs more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.mongodb.url import parse
from shardq.storage.requests import Append
from shardq.testing import BundleFactory
from tests.local_server import local_server

pytestmark = [pytest.mark.server, pytest.mark.long]


@pytest.fixture
def narrow_url() -> Iterator[str]:
    with local_server("mongodb", "--open-files", "2000") as (url, _):
        yield url


def test_a_queue_is_refused_while_the_files_of_deleted_ones_leave_no_room(narrow_url: str) -> None:
    store = MongoStore(parse(narrow_url))
    with shardq.connect(narrow_url) as client:
        client.create_queue("first")
        for shard in range(80):
            store.append(Append(Shard("first", shard // 8, shard % 8), (BundleFactory(store.now)(),)))
        store.close()
        client.delete_queue("first")
        client.create_queue("second")
        for shard in range(60):
            store.append(Append(Shard("second", shard // 8, shard % 8), (BundleFactory(store.now)(),)))
        store.close()
        refused = pytest.raises(
            OutcomeUnknown,
            match=r"'third' is created: call it again .* open files, 320 of them .* and may open 2000",
        )
        with shardq.connect(narrow_url) as other, refused:
            other.create_queue("third")
        client.queue("second").producer().send(b"the server is well")


def test_doctor_says_that_the_server_may_open_few_files(narrow_url: str) -> None:
    with shardq.connect(narrow_url) as client:
        client.create_schema()
        (found,) = (finding for finding in client.diagnose() if finding.name == "open files")
    assert not found.ok
    assert found.value == "2000 allowed"
    assert "ulimit" in found.remedy
