"""ElasticMQ, a queue server in memory with the interface of Amazon SQS, on this computer.

    python tools/servers/elasticmq.py start [--folder DIR]     prints its URL
    python tools/servers/elasticmq.py stop [--folder DIR]
    python tools/servers/elasticmq.py run -- COMMAND ...       with SHARDQ_TEST_ELASTICMQ_URL set, and in place of the
                                                               word {url}

Needs Java 11 and the Python package `jgo`. The first start downloads its jars from Maven Central (about 40 MB).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from maven_jars import jars
from ports import answers, kept_ports
from server_process import ServerProcess
from server_tool import ServerTool

VERSION = "1.7.1"
ADDRESS = "127.0.0.1"
PATIENCE = 60.0
CONFIGURATION = """
include classpath("application.conf")
node-address {{ protocol = http, host = "{address}", port = {port} }}
rest-sqs {{ bind-hostname = "{address}", bind-port = {port} }}
rest-stats.enabled = false
"""


def start(folder: Path, options: argparse.Namespace) -> str:
    """Start it; returns the URL of its interface. Raises RuntimeError."""
    if shutil.which("java") is None:
        raise RuntimeError("ElasticMQ needs Java, and there is no `java` on the path: install it")
    (port,) = kept_ports(folder, [ADDRESS], 1)
    server = folder / "server"
    server.mkdir(parents=True, exist_ok=True)
    (server / "elasticmq.conf").write_text(CONFIGURATION.format(address=ADDRESS, port=port))
    path = ":".join(map(str, jars(f"org.elasticmq:elasticmq-server_2.13:{options.version}")))
    options_of_java = (f"-Xmx{options.heap}", f"-Dconfig.file={server / 'elasticmq.conf'}")
    command = ["java", *options_of_java, "-cp", path, "org.elasticmq.server.Main"]
    ServerProcess(server).start(command, lambda: answers(ADDRESS, port), patience=PATIENCE)
    return f"http://{ADDRESS}:{port}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of it."""
    parser.add_argument("--heap", default="1G", help="memory of the server")
    parser.add_argument("--version", default=VERSION)


if __name__ == "__main__":
    sys.exit(ServerTool("elasticmq", __doc__ or "", add_options, start).main())
