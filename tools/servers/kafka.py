"""One broker of Apache Kafka on this computer, with its own controller (KRaft).

    python tools/servers/kafka.py start [--folder DIR]     prints its address
    python tools/servers/kafka.py stop [--folder DIR]
    python tools/servers/kafka.py run -- COMMAND ...       with SHARDQ_TEST_KAFKA_URL set, and in place of the word
                                                           {url}

Needs Java 17 and the Python package `jgo`. The first start downloads its jars from Maven Central (about 100 MB).
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path

from maven_jars import jars
from ports import answers, kept_ports
from server_process import ServerProcess
from server_tool import ServerTool

VERSION = "4.1.1"
ADDRESS = "127.0.0.1"
PATIENCE = 90.0
CONFIGURATION = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller}
advertised.listeners=PLAINTEXT://{address}:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{address}:{controller}
log.dirs={folder}/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def start(folder: Path, options: argparse.Namespace) -> str:
    """Start it; returns its address. Raises RuntimeError."""
    if shutil.which("java") is None:
        raise RuntimeError("Kafka needs Java, and there is no `java` on the path: install it")
    port, controller = kept_ports(folder, [ADDRESS], 2)
    server = folder / "server"
    server.mkdir(parents=True, exist_ok=True)
    settings = server / "server.properties"
    settings.write_text(
        CONFIGURATION.format(address=ADDRESS, port=port, controller=controller, folder=server)
    )
    path = ":".join(map(str, jars(f"org.apache.kafka:kafka_2.13:{options.version}")))
    java = ["java", f"-Xmx{options.heap}", "-cp", path]
    if not (server / "data" / "meta.properties").exists():
        _format(java, settings)
    ServerProcess(server).start(
        [*java, "kafka.Kafka", str(settings)], lambda: answers(ADDRESS, port), patience=PATIENCE
    )
    return f"{ADDRESS}:{port}"


def _format(java: list[str], settings: Path) -> None:
    cluster = base64.urlsafe_b64encode(os.urandom(16)).decode("ascii").rstrip("=")
    command = [*java, "kafka.tools.StorageTool", "format", "-t", f"A{cluster[1:]}", "-c", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Kafka's folder could not be made: {(done.stderr or done.stdout).strip()}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of it."""
    parser.add_argument("--heap", default="1G", help="memory of the server")
    parser.add_argument("--version", default=VERSION)


if __name__ == "__main__":
    sys.exit(ServerTool("kafka", __doc__ or "", add_options, start).main())
