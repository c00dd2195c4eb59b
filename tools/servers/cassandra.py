"""A real Cassandra on this computer, without root and without Docker.

    python tools/servers/cassandra.py start [--nodes 3] [--folder DIR]     prints its URL
    python tools/servers/cassandra.py stop [--folder DIR]
    python tools/servers/cassandra.py run -- COMMAND ...                   with SHARDQ_TEST_CASSANDRA_URL set, and in
                                                                           place of the word {url}

Needs Java 17 and the Python package `jgo`. The first start downloads 100 jars from Maven Central (about 70 MB).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from cassandra_node import VERSION, Node
from maven_jars import jars
from ports import kept_ports
from server_tool import ServerTool


def start(folder: Path, options: argparse.Namespace) -> str:
    """Start the nodes one after the other; returns the cluster's URL. Raises RuntimeError."""
    if shutil.which("java") is None:
        raise RuntimeError("Cassandra needs Java 17, and there is no `java` on the path: install it")
    addresses = [f"127.0.0.{number}" for number in range(1, options.nodes + 1)]
    port, storage_port, *jmx = kept_ports(folder, addresses, 2 + (len(addresses) if options.jmx else 0))
    for number, address in enumerate(addresses):
        node = Node(
            folder / address,
            address,
            addresses[:2],
            port=port,
            storage_port=storage_port,
            heap=options.heap,
            short_lived=options.short_lived,
            tombstones=options.tombstones,
            authenticated=options.authenticated,
            paxos=options.paxos,
            tls=options.tls,
            java=[f"-Dcassandra.jmx.local.port={jmx[number]}"] if options.jmx else [],
        )
        node.start(jars(f"org.apache.cassandra:cassandra-all:{options.version}"))
    return f"cassandra://{','.join(f'{address}:{port}' for address in addresses)}/shardq"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of the nodes."""
    parser.add_argument("--nodes", type=int, choices=(1, 2, 3), default=1)
    parser.add_argument("--heap", default="768m", help="memory of each node")
    parser.add_argument(
        "--tombstones", type=int, default=100_000, help="a read that crosses more of them is refused"
    )
    parser.add_argument("--version", default=VERSION)
    parser.add_argument(
        "--short-lived", action="store_true", help="compile little: starts sooner, and is slower in the end"
    )
    parser.add_argument("--paxos", choices=("v1", "v2"), default="v2", help="paxos_variant of the nodes")
    parser.add_argument(
        "--authenticated", action="store_true", help="ask for a password (cassandra, cassandra)"
    )
    parser.add_argument("--jmx", action="store_true", help="let nodetool.py reach the nodes")
    parser.add_argument(
        "--tls",
        type=Path,
        metavar="DIR",
        help="encrypt, with DIR/server.pem; clients need certificates of DIR/ca.pem",
    )


if __name__ == "__main__":
    sys.exit(ServerTool("cassandra", __doc__ or "", add_options, start).main())
