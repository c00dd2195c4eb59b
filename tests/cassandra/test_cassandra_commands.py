"""What the command line says of a cluster that cannot be used: one line at the end, a code, and never the password."""

from __future__ import annotations

import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from shardq.storage.cassandra.store import CassandraStore
from tests.cassandra_server import keyspace_beside

pytestmark = [pytest.mark.server, pytest.mark.long]

USAGE, NOT_FOUND, UNAVAILABLE = 2, 3, 4
SCRIPT = "import sys; from shardq.cli.main import main; sys.exit(main())"


def shardq(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, "--url", url, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("place", "keyspace", "words", "code", "told"),
    [
        ("127.0.0.1:1", "shardq?timeout=2", ("list",), UNAVAILABLE, "check hosts, port and network"),
        ("{}", "nowhere", ("send", "q", "hello"), NOT_FOUND, "`shardq create`"),
        ("{}", "shardq?consistency=MANY", ("list",), USAGE, "consistency='MANY'"),
        ("{}", "shardq?ca=/nowhere.pem", ("list",), USAGE, "ca='/nowhere.pem'"),
        ("{}", "shardq?ssl=true", ("list",), UNAVAILABLE, "check `ssl`"),
        ("{}", "nowhere?replication=mars:3", ("create", "q"), USAGE, "`replication`"),
        ("{}", "{}", ("stats", "nowhere"), NOT_FOUND, "shardq create nowhere"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_told_in_the_last_line(
    cassandra_url: str,
    store: CassandraStore,
    place: str,
    keyspace: str,
    words: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    store.create_schema()
    there = urlsplit(cassandra_url)
    address = f"{place.format(there.netloc.rpartition('@')[2])}/{keyspace.format(there.path.strip('/'))}"
    ended = shardq(f"cassandra://me:hush@{address}", *words)
    assert ended.returncode == code
    assert ended.stdout == ""
    *before, line = ended.stderr.splitlines()
    assert told in line
    assert all(note.startswith("shardq: still trying: ") for note in before)
    assert "hush" not in ended.stderr


def test_a_queue_on_cassandra_is_used_from_the_shell(cassandra_url: str) -> None:
    url = keyspace_beside(cassandra_url, "shell")  # other tests make queues without settings
    for words in (("create", "post", "--shards", "2"), ("send", "post", "dear", "sir")):
        assert shardq(url, *words).returncode == 0
    received = shardq(url, "receive", "post", "--limit", "2", "--ack")
    assert sorted(received.stdout.split()) == ["dear", "sir"]
    assert shardq(url, "delete", "post", "--yes").returncode == 0
    checkup = shardq(
        url, "doctor"
    )  # which does not like that the server of the tests keeps one copy, and syncs seldom
    assert "2 of " in checkup.stderr
    assert "commitlog_sync: group" in checkup.stdout
    assert "three copies" in checkup.stdout
