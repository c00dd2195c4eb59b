"""`nodetool` for a local Cassandra that was started with `--jmx`.

python tools/servers/nodetool.py DIR NODE COMMAND ...     DIR is the folder of the servers; the first NODE is 1
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cassandra_node import EXPORTS, OPENS, VERSION
from maven_jars import jars


def command(folder: Path, node: int, words: list[str]) -> list[str]:
    """Return the command line of Java."""
    port = (folder / "ports").read_text().split()[1 + node]  # behind those of clients and of other nodes
    return [
        "java",
        *("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={folder}"),
        f"-Dlogback.configurationFile={folder / f'127.0.0.{node}' / 'logback.xml'}",
        *(f"--add-exports={module}=ALL-UNNAMED" for module in EXPORTS),
        *(f"--add-opens={module}=ALL-UNNAMED" for module in OPENS),
        *("-cp", ":".join(map(str, jars(f"org.apache.cassandra:cassandra-all:{VERSION}")))),
        *("org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", port, *words),
    ]


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    line = command(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    os.execvp(line[0], line)
