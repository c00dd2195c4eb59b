"""A server that asks for a password and for certificates, and what clients without them are told."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import shardq
from shardq.errors import InvalidSetting, StoreUnavailable
from shardq.storage.cassandra.connecting import Address
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.cassandra.url import parse
from tests.certificates import write_certificates
from tests.local_server import local_server

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("test_guarded_server"), pytest.mark.long]

PASSWORD = "se/cr@t:of?ours"
QUOTED = "se%2Fcr%40t%3Aof%3Fours"


class Guarded(NamedTuple):
    """The address of the server with all that it asks for, and the certificates."""

    address: Address
    folder: Path

    def without(self, **changes: Any) -> CassandraStore:
        return CassandraStore(msgspec.structs.replace(self.address, timeout=5.0, **changes))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def guarded(certificates: Path) -> Iterator[Guarded]:
    with local_server("cassandra", "--short-lived", "--authenticated", "--tls", str(certificates)) as (
        url,
        _,
    ):
        options = f"ca={certificates}/ca.pem&cert={certificates}/client.pem"
        root = parse(f"{url.replace('://', '://cassandra:cassandra@')}?{options}")
        _make_roles(root)
        yield Guarded(parse(f"{url.replace('://', f'://shop:{QUOTED}@')}?{options}"), certificates)


def _make_roles(root: Address) -> None:
    """A user with all rights in the keyspace, and those who may read and write, only read, or nothing."""
    session = Session(root)
    deadline = time.monotonic() + 60
    while True:  # the server makes its first role a moment after it begins to answer
        try:
            with session.unprepared() as driver:
                for user in ("shop", "clerk", "reader", "guest"):
                    driver.execute(f"CREATE ROLE {user} WITH LOGIN = true AND PASSWORD = '{PASSWORD}'")
                driver.execute("GRANT CREATE ON ALL KEYSPACES TO shop")
            break
        except StoreUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.5)
    store = CassandraStore(root)
    store.create_schema()
    with session.unprepared() as driver:
        for user, right in (
            ("shop", "ALL"),
            ("clerk", "SELECT"),
            ("clerk", "MODIFY"),
            ("reader", "SELECT"),
        ):
            driver.execute(f"GRANT {right} ON KEYSPACE {root.keyspace} TO {user}")
    store.close()


def refusal(store: CassandraStore, *, retryable: bool | None = False) -> str:
    """What is said to one who loads a queue; the password never is."""
    with pytest.raises(StoreUnavailable) as caught:
        store.load_queue("q")
    assert retryable is None or caught.value.retryable is retryable
    (finding,) = store.diagnose()
    assert not finding.ok
    store.close()
    told = f"{caught.value!r} {caught.value.__cause__!r} {finding} {store.session.address!r}"
    assert PASSWORD not in told
    assert QUOTED not in told
    return str(caught.value)


def test_a_client_with_password_and_certificate_works(guarded: Guarded) -> None:
    address = guarded.address
    url = (
        f"cassandra://{address.user}:{QUOTED}@{address.hosts[0]}:{address.port}/{address.keyspace}"
        f"?ca={address.ca}&cert={address.cert}"
    )
    with shardq.connect(url) as client:
        queue = client.create_queue("letters", max_deliveries=None)
        with queue.producer() as producer:
            producer.send(b"dear sir")
        with queue.consumer() as consumer:
            batch = consumer.receive(1, wait=5)
            assert batch[0].body == b"dear sir"
            batch.ack()
        found = {finding.name: finding for finding in client.diagnose()}
        assert [finding.name for finding in found.values() if not finding.ok] == ["copies"]
        assert "not checked" in found["settings"].value
        client.delete_queue("letters")


@pytest.mark.parametrize("changes", [{"password": "wrong"}, {"user": "nobody"}, {"user": "", "password": ""}])
def test_a_wrong_login_is_refused_for_good(
    guarded: Guarded, changes: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert "check user and password" in refusal(guarded.without(**changes))
    assert PASSWORD not in caplog.text


def test_a_user_without_rights_is_told_which_are_needed(guarded: Guarded) -> None:
    store = guarded.without(user="guest")
    with pytest.raises(StoreUnavailable, match="SELECT and MODIFY on the keyspace") as caught:
        store.load_queue("q")
    assert not caught.value.retryable
    assert [finding.ok for finding in store.diagnose()][-1] is False
    store.close()


def test_a_user_who_may_read_and_write_needs_no_more_than_that(guarded: Guarded) -> None:
    store = guarded.without(user="clerk")
    assert store.load_queue("q") is None
    store.create_schema()
    store.close()
    elsewhere = guarded.without(user="clerk", keyspace="elsewhere")
    with pytest.raises(StoreUnavailable, match="CREATE for `shardq create`") as caught:
        elsewhere.create_schema()
    assert not caught.value.retryable
    elsewhere.close()


def test_the_doctor_tells_a_user_who_may_only_read_from_one_who_may_write(guarded: Guarded) -> None:
    for user, may in (("clerk", True), ("reader", False)):
        store = guarded.without(user=user)
        found = {finding.name: finding for finding in store.diagnose()}
        assert found["rights"].ok is may, found
        assert may or "MODIFY on the keyspace" in found["rights"].remedy
        store.close()


def test_a_server_of_another_authority_is_not_trusted(guarded: Guarded) -> None:
    told = refusal(guarded.without(ca=str(guarded.folder / "other.pem")))
    assert "check `ssl`, `ca`, `cert`" in told
    assert "CERTIFICATE_VERIFY_FAILED" in told


def test_a_server_at_an_address_that_its_certificate_does_not_name_is_not_trusted(guarded: Guarded) -> None:
    with relay("127.0.0.2", guarded.address.hosts[0], guarded.address.port):
        told = refusal(guarded.without(hosts=("127.0.0.2",)))
    assert "IP address mismatch" in told


@contextmanager
def relay(address: str, target: str, port: int) -> Iterator[None]:
    """The same server at another address, for one exchange of each connection: enough for a refusal."""

    class Relayed(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((target, port)) as server:
                server.sendall(self.request.recv(65536))
                self.request.sendall(server.recv(65536))
                self.request.recv(65536)

    with socketserver.ThreadingTCPServer((address, port), Relayed) as listening:
        threading.Thread(target=listening.serve_forever).start()
        yield
        listening.shutdown()


@pytest.mark.parametrize("cert", ["", "stranger.pem"])
def test_a_client_without_a_certificate_of_the_authority_is_refused(guarded: Guarded, cert: str) -> None:
    # The server ends the connection after its alert, and the client may see that first.
    told = refusal(guarded.without(cert=cert and str(guarded.folder / cert)), retryable=None)
    assert "`cert`" in told


def test_a_client_that_does_not_encrypt_is_told_to(guarded: Guarded) -> None:
    assert "ssl=true" in refusal(guarded.without(ssl=False), retryable=True)


def test_a_client_that_encrypts_for_a_server_that_does_not_is_told(cassandra_url: str) -> None:
    store = CassandraStore(msgspec.structs.replace(parse(cassandra_url), ssl=True, timeout=5.0))
    assert "check `ssl`" in refusal(store)


@pytest.mark.parametrize("option", ["ca", "cert", "key"])
def test_a_certificate_that_cannot_be_read_is_named(guarded: Guarded, option: str) -> None:
    store = guarded.without(**{option: "/nowhere/it.pem"})
    with pytest.raises(InvalidSetting, match=f"{option}='/nowhere/it.pem'"):
        store.load_queue("q")
    store.close()
