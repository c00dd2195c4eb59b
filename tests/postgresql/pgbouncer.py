"""PgBouncer before a server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shardq.storage.postgresql.url import parse
from tests.local_server import do_without
from tests.processes import eventually

__all__ = ["pooler"]


@contextmanager
def pooler(url: str, **settings: object) -> Iterator[str]:
    """Start PgBouncer in transaction mode before a server; yield the URL through it. Settings replace these."""
    program = os.environ.get("SHARDQ_PGBOUNCER") or shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not Path(program).exists():
        do_without("there is no `pgbouncer`: install Debian's package of that name")
    host, port = parse(url)[0].hosts[0].split(":")
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        users, file = Path(folder) / "users", Path(folder) / "pgbouncer.ini"
        users.write_text('"shardq" ""\n')
        given = {
            "listen_addr": "127.0.0.1",
            "listen_port": own,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": users,
            "admin_users": "shardq",
            "pool_mode": "transaction",
            "default_pool_size": 4,
        } | settings
        lines = "\n".join(f"{name} = {value}" for name, value in given.items())
        file.write_text(f"[databases]\n* = host={host} port={port}\n[pgbouncer]\n{lines}\n")
        user: Any = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid} if os.getuid() == 0 else {}
        with subprocess.Popen(
            [program, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user
        ) as process:
            try:
                assert eventually(lambda: _answers(own)), "PgBouncer answers"
                yield url.replace(f"{host}:{port}", f"127.0.0.1:{own}")
            finally:
                process.terminate()


def _answers(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False
