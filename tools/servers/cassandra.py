"""A real Cassandra on this computer, without root and without Docker.

    python tools/servers/cassandra.py start [--nodes 3] [--folder DIR]     prints its URL
    python tools/servers/cassandra.py stop [--folder DIR]
    python tools/servers/cassandra.py run -- COMMAND ...                   with SHARDQ_TEST_CASSANDRA_URL set, and in
                                                                           place of the word {url}

Needs Java 17 and the Python package `jgo`. The first start downloads 100 jars from Maven Central (about 70 MB).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cassandra_jars import VERSION, cache_folder, jars
from cassandra_node import Node

VARIABLE = "SHARDQ_TEST_CASSANDRA_URL"
PORTS = range(10_000, 32_000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, stop, or start around a command."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    options = _parser().parse_args(words[:end])
    folder = options.folder or cache_folder() / "cassandra"
    if options.action == "stop":
        stop(_existing(folder))
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    try:
        if options.action == "run":
            return _run(options, words[end + 1 :])
        print(start(folder, options))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def start(folder: Path, options: argparse.Namespace) -> str:
    """Start the nodes one after the other; returns the cluster's URL. Raises RuntimeError."""
    if shutil.which("java") is None:
        raise RuntimeError("Cassandra needs Java 17, and there is no `java` on the path: install it")
    addresses = [f"127.0.0.{number}" for number in range(1, options.nodes + 1)]
    ports = _ports(folder, addresses)
    nodes = [
        Node(
            folder / address,
            address,
            addresses[:2],
            port=ports[0],
            storage_port=ports[1],
            heap=options.heap,
            authenticated=options.authenticated,
            tls=options.tls,
        )
        for address in addresses
    ]
    try:
        for node in nodes:
            node.start(jars(options.version))
    except BaseException:
        stop(nodes)
        raise
    return f"cassandra://{','.join(f'{node.address}:{node.port}' for node in nodes)}/shardq"


def stop(nodes: Sequence[Node]) -> None:
    """End every node that runs."""
    for node in nodes:
        node.stop()


def _run(options: argparse.Namespace, command: Sequence[str]) -> int:
    if not command:
        raise SystemExit("give a command: run -- COMMAND ...")
    folder = Path(tempfile.mkdtemp(prefix="shardq-cassandra-"))
    try:
        url = start(folder, options)
        words = [url if word == "{url}" else word for word in command]
        return subprocess.run(words, env=os.environ | {VARIABLE: url}, check=False).returncode
    finally:
        stop(_existing(folder))
        shutil.rmtree(folder, ignore_errors=True)


def _existing(folder: Path) -> list[Node]:
    return [Node(path.parent, path.parent.name, ()) for path in sorted(folder.glob("*/pid"))]


def _ports(folder: Path, addresses: Sequence[str]) -> tuple[int, int]:
    """Ports that are free on all addresses; those of a running cluster stay.

    A node takes its ports seconds after they are chosen. So they are chosen at random, that clusters which start at
    the same time do not choose the same, and from below those that the system gives to outgoing connections.
    """
    file = folder / "ports"
    if file.exists():
        client, storage = file.read_text().split()
        return int(client), int(storage)
    free = next(
        pair
        for pair in iter(lambda: random.sample(PORTS, 2), None)
        if all(_is_free(address, port) for address in addresses for port in pair)
    )
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{free[0]} {free[1]}")
    return free[0], free[1]


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("start", "stop", "run"))
    parser.add_argument("--nodes", type=int, choices=(1, 2, 3), default=1)
    parser.add_argument("--folder", type=Path, help="where the nodes keep their data and logs")
    parser.add_argument("--heap", default="768m", help="memory of each node")
    parser.add_argument("--version", default=VERSION)
    parser.add_argument(
        "--authenticated", action="store_true", help="ask for a password (cassandra, cassandra)"
    )
    parser.add_argument(
        "--tls",
        type=Path,
        metavar="DIR",
        help="encrypt, with DIR/server.pem; clients need certificates of DIR/ca.pem",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
