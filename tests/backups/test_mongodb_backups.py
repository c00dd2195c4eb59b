"""The data folder of a primary is copied under load, locked or as a snapshot, and restored into another server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("pymongo", reason="the extra `mongodb` is not installed")

import shardq
from tests.backups.kept import check_kept, check_report, keep
from tests.backups.under_load import (
    check_restored,
    commands,
    loaded,
    program,
    run_commands,
    saving,
)
from tests.local_server import local_server, server_pid
from tests.processes import eventually

pytestmark = pytest.mark.server


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A folder with a `mongosh`: the registries of this project have none."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder, "mongosh", sys.executable, Path(__file__).with_name("mongosh.py"))
    return folder


def in_place(port: str, backup: Path) -> Callable[[Path], None]:
    """Put a copy into the data folder of a server that is to be started at that port."""

    def restore(folder: Path) -> None:
        (folder / "ports").write_text(port)
        data = folder / port / "data"
        data.mkdir(parents=True)
        run_commands(commands("cp -a", '"$DBPATH"\n'), {"BACKUP": backup, "DBPATH": data})

    return restore


def test_a_copy_of_a_locked_server_has_all_that_was_confirmed_before(tmp_path: Path, shell: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    with local_server("mongodb") as (url, folder), shardq.connect(url) as client:
        ids, port = keep(client), (folder / "ports").read_text()
        with loaded(client, url, tmp_path) as stage, saving(stage):
            server = f"mongodb://127.0.0.1:{port}/?directConnection=true"
            where = {"MONGO": server, "DBPATH": folder / port / "data", "BACKUP": copy}
            run_commands(commands("fsyncLock"), where, programs=[shell])
    with local_server("mongodb", restore=in_place(port, copy)) as (url, _):
        check_report(url)
        with shardq.connect(url) as client:
            check_restored(client, stage)
            check_kept(client, ids)


def test_a_snapshot_of_the_volume_is_restored_under_another_name(tmp_path: Path, shell: Path) -> None:
    copy = tmp_path / "copy"
    with local_server("mongodb") as (url, folder), shardq.connect(url) as client:
        ids, port = keep(client), (folder / "ports").read_text()
        with loaded(client, url, tmp_path) as stage, saving(stage), _stopped(server_pid(folder, int(port))):
            subprocess.run(["cp", "-a", folder / port / "data", copy], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        other = str(free.getsockname()[1])

    with ThreadPoolExecutor(1) as thread:

        def restore(folder: Path) -> None:
            in_place(other, copy)(folder)
            thread.submit(eventually, lambda: _is_renamed(other, shell))

        with local_server("mongodb", restore=restore) as (url, _):  # waits until it has a primary
            assert f":{other}/" in url
            check_report(url)
            with shardq.connect(url) as client:
                check_restored(client, stage)
                check_kept(client, ids)


def _is_renamed(port: str, shell: Path) -> bool:
    """Tell a member that has started under another name its name; False while it does not listen to that yet."""
    with suppress(AssertionError):
        run_commands(commands("rs.reconfig"), {"HOST": f"127.0.0.1:{port}"}, programs=[shell])
        return True
    return False


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Keep a process from writing: its files are as a snapshot of their volume would be."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
