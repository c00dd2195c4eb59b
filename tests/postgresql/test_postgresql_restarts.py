"""Servers of their own that end, fill up, cut off or ask for more than a connection."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

import shardq  # noqa: E402
from shardq.storage.postgresql.connections import Sql  # noqa: E402
from shardq.storage.postgresql.store import PostgresStore  # noqa: E402
from shardq.storage.postgresql.url import parse  # noqa: E402
from tests.certificates import write_certificates  # noqa: E402
from tests.local_server import local_server, server_pid, start_again  # noqa: E402
from tests.postgresql.pgbouncer import pooler  # noqa: E402
from tests.processes import eventually  # noqa: E402

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
PATIENCE = 60.0
PASSWORD = "secret"  # of tools/servers/postgresql.py


class Load:
    """Threads that send and receive until they are told to end."""

    def __init__(self, client: shardq.Client) -> None:
        self.queue = client.create_queue(f"l{os.urandom(5).hex()}", shards=2, time_shards=1)
        self.sent: list[str] = []
        self.worked: list[str] = []
        self.failed: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(do,)) for do in (self._send, self._work)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self) -> None:
        """Return when more was sent and worked."""
        sent, worked = len(self.sent), len(self.worked)
        assert eventually(
            lambda: bool(self.failed) or (len(self.sent) > sent + 20 and len(self.worked) > worked + 20)
        ), f"more is done than {sent} sent, {worked} worked, {self.failed}"

    def drain(self) -> None:
        """Work what is left."""
        assert eventually(lambda: not self.queue.counts().in_flight), "what is held comes back"
        with self.queue.consumer() as consumer:
            while batch := consumer.receive(500, wait=1):
                self.worked += [message.id for message in batch]
                batch.ack()

    def _run(self, do: Callable[[], None]) -> None:
        try:
            do()
        except BaseException as error:
            self.failed.append(error)

    def _send(self) -> None:
        producer = self.queue.producer()
        while not self._over.is_set():
            self.sent.append(producer.send(b"x"))

    def _work(self) -> None:
        with self.queue.consumer(visibility_timeout=30) as consumer:
            while not self._over.is_set():
                for message in consumer.receive(5, wait=0.2):
                    with suppress(shardq.LeaseLost):  # the claim was undone by a crash, and made again
                        message.ack()
                        self.worked.append(message.id)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL], ids=lambda how: how.name)
def test_work_goes_on_after_a_restart(how: signal.Signals) -> None:
    with local_server("postgresql", "--without-fsync") as (url, folder):
        with shardq.connect(url, retry_seconds=PATIENCE) as client, Load(client) as load:
            load.goes_on()
            pid = server_pid(folder, int(parse(url)[0].hosts[0].split(":")[1]))
            os.kill(pid, how)
            assert eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not is_running(pid)), (
                "it has ended"
            )
            start_again("postgresql", folder, "--without-fsync")
            load.goes_on()
        assert not load.failed
        with shardq.connect(url) as client:
            load.queue = client.queue(load.queue.name)
            load.drain()
    assert set(load.worked) == set(load.sent)
    assert len(set(load.sent)) == len(load.sent)


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


@pytest.fixture
def hurried(postgresql_url: str) -> Iterator[Callable[[str], str]]:
    """Makes a role with a setting, and returns the URL of a schema of its own."""
    name = f"hurried{os.urandom(4).hex()}"
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")

        def make(setting: str) -> str:
            connection.execute(f"ALTER ROLE {name} SET {setting}")
            return f"{postgresql_url.replace('shardq@', f'{name}@')}?schema={name}"

        yield make
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        connection.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("setting", ["statement_timeout = 300", "lock_timeout = 100"])
def test_work_goes_on_under_a_timeout_of_the_role(hurried: Callable[[str], str], setting: str) -> None:
    url = hurried(setting)
    address, _ = parse(url)
    with shardq.connect(url, retry_seconds=PATIENCE) as client, Load(client) as load:
        load.goes_on()
        with psycopg.connect(address.conninfo) as other:
            other.execute(f"LOCK TABLE {address.schema}.slice IN ACCESS EXCLUSIVE MODE")
            time.sleep(1)  # longer than the timeout
        load.goes_on()
    assert not load.failed


def test_a_transaction_that_stood_still_for_too_long_may_be_repeated(hurried: Callable[[str], str]) -> None:
    def stands_still(sql: Sql, _: int) -> None:
        sql.one("SELECT 1")
        time.sleep(1)
        sql.one("SELECT 1")

    store = PostgresStore(parse(hurried("idle_in_transaction_session_timeout = 100"))[0])
    with pytest.raises(shardq.StoreUnavailable) as raised:
        store.session.write(stands_still)
    assert raised.value.retryable
    store.ping()
    store.close()


def test_encryption_and_a_password_file(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    with local_server("postgresql", "--without-fsync", "--authenticated", "--tls", str(tmp_path)) as (url, _):
        host = parse(url)[0].hosts[0]
        passwords = tmp_path / "passwords"
        passwords.write_text(f"{host}:*:shardq:{PASSWORD}\n")
        passwords.chmod(0o600)

        def given(authority: str = "ca", passfile: Path = passwords) -> str:
            tls = f"sslmode=verify-full&sslrootcert={tmp_path}/{authority}.pem"
            return f"postgresql://shardq@{host}/postgres?{tls}&passfile={passfile}"

        with shardq.connect(given()) as client:
            queue = client.create_queue("q")
            queue.producer().send(b"x")
            (message,) = queue.consumer().receive(1, wait=5)
            message.ack()
        for refused, said in {
            given(authority="other"): "certificate verify failed",
            given(passfile=tmp_path / "none"): "check user, password",
        }.items():
            store = PostgresStore(parse(refused)[0])
            with pytest.raises(shardq.StoreUnavailable, match=said):
                store.ping()
            store.close()


@contextmanager
def small_disk(folder: Path, megabytes: int, owner: int) -> Iterator[Path]:
    """A file system of so many megabytes, with a folder in it."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        inside = folder / "inside"
        inside.mkdir(0o700)
        os.chown(inside, owner, -1)
        yield inside
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_refuses_sends_and_loses_nothing() -> None:
    with (
        local_server("postgresql", "--without-fsync") as (url, folder),
        tempfile.TemporaryDirectory() as parent,
    ):
        Path(parent).chmod(0o755)
        (data,) = folder.glob("*/data")
        with small_disk(Path(parent) / "disk", 64, data.stat().st_uid) as disk:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
                connection.execute("ALTER ROLE shardq SET default_tablespace = small")
            with shardq.connect(url, retry_seconds=0.5) as client:
                sent = send_until_full(client, disk.parent / "filler")
                queue = client.queue("q")
                sent.append(queue.producer().send(b"after"))
                with queue.consumer() as consumer:
                    got: list[str] = []
                    while batch := consumer.receive(100, wait=1):
                        got += [message.id for message in batch]
                        batch.ack()
            assert sorted(got) == sorted(sent)


def send_until_full(client: shardq.Client, filler: Path) -> list[str]:
    """Return what was sent before the disk had no room left, which it has again then."""
    producer = client.create_queue("q").producer()
    sent = [producer.send(b"before")]
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    with pytest.raises(shardq.StoreUnavailable, match="short of disk space") as raised:
        sent.extend(producer.send(b"x" * 10_000) for _ in range(10_000))
    assert raised.value.retryable
    filler.unlink()
    return sent


def test_work_goes_on_behind_a_pooler_and_leaves_nothing_on_its_connections() -> None:
    with (
        local_server("postgresql", "--without-fsync") as (url, _),
        pooler(url) as pooled,
        psycopg.connect(url, autocommit=True) as spy,
    ):
        unprepared = f"{pooled}?prepare=false"
        with shardq.connect(unprepared, retry_seconds=PATIENCE) as client, Load(client) as load:
            load.goes_on()
            with (
                psycopg.connect(parse(pooled)[0].conninfo) as app,
                client.transaction(connection=app) as within,
            ):
                within.queue(load.queue.name).producer().send(b"x", dedupe_key="k")
                app.rollback()
            load.goes_on()
        assert not load.failed
        with shardq.connect(unprepared) as client:
            load.queue = client.queue(load.queue.name)
            load.drain()
        assert set(load.worked) == set(load.sent)
        assert spy.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchall() == [(0,)]
