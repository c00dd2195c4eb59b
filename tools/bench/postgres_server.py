"""A PostgreSQL server of the comparison's own: a new cluster, as its package configures it but for the memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psycopg

from .peer import PeerMissing, last_words
from .server import Server, find_program, free_port

USER = "postgres"  # runs it where this runs as root, which PostgreSQL refuses
OPTIONS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "shared_buffers": "256MB"}


class PostgresServer:
    """With fsync and synchronous_commit on, which are its defaults."""

    def __init__(self, folder: Path) -> None:
        program, self._data, self.port = _program("postgres"), folder / "data", free_port()
        user = USER if os.getuid() == 0 else None
        self._data.mkdir(0o700)
        if user:
            folder.chmod(0o711)  # so that the other user can go through it
            shutil.chown(self._data, user, user)
        _initialize(self._data, user)
        options = [word for each in OPTIONS.items() for word in ("-c", "=".join(each))]
        command = [program, "-D", str(self._data), "-p", str(self.port), *options]
        self._server = Server(command, folder=folder, user=user)
        self._server.wait_until(lambda: connect(self.port).close())

    def stop(self) -> None:
        self._server.stop()


def connect(port: int) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(host="127.0.0.1", port=port, user=USER, dbname=USER, autocommit=True)


def _program(name: str) -> str:
    """Debian keeps the server's programs off the path, in a folder for each version: the newest."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: path.parts[-3])
    return find_program(name, *map(str, installed[-1:]))


def _initialize(data: Path, user: str | None) -> None:
    words = ["--auth=trust", "--no-sync", f"--username={USER}", "--encoding=UTF8", "--locale=C"]
    command = [_program("initdb"), *words, "-D", str(data)]
    done = subprocess.run(
        command, cwd=data, user=user, group=user, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PeerMissing(f"PostgreSQL's cluster could not be made: {last_words(done.stderr)}")
