"""One node of a local Cassandra: its folder, its configuration, its process."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from server_process import ServerProcess

VERSION = "5.0.6"
PATIENCE = 180.0
OPTIONS_REQUEST = bytes((4, 0, 0, 0, 5, 0, 0, 0, 0))  # of the native protocol, version 4; any answer will do

# conf/jvm17-server.options of the release.
EXPORTS = [
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "java.base/java.lang.ref",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
]
OPENS = [
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
]

LOGGING = """
<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A node on an address of its own; everything that it writes is in its folder."""

    folder: Path
    address: str
    seeds: Sequence[str]
    port: int = 9042
    storage_port: int = 7000
    heap: str = "768m"
    tombstones: int = 100_000  # a read that crosses more of them is refused
    short_lived: bool = False  # spend little on compiling: half the processor time of the first ten minutes
    authenticated: bool = False
    paxos: str = "v2"
    # Of cassandra.yaml, over those below; None: not set.
    settings: Mapping[str, object] = field(default_factory=dict)
    java: Sequence[str] = ()  # more options of Java
    tls: Path | None = None  # a folder: server.pem (PKCS 8 key, certificates), ca.pem (who signs clients)

    def start(self, jars: Sequence[Path]) -> None:
        """Start the node and return when it answers clients; raises RuntimeError when it does not."""
        self._configure()
        ServerProcess(self.folder).start(self._command(jars), self.answers, patience=PATIENCE)

    def answers(self) -> bool:
        """True when the node takes requests of clients."""
        try:
            with socket.create_connection((self.address, self.port), timeout=1) as client:
                # Without a certificate it says nothing more; its port is the last thing that opens.
                if self.tls:
                    return True
                client.sendall(OPTIONS_REQUEST)
                return bool(client.recv(1))
        except OSError:
            return False

    def _configure(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # JSON is YAML: no library is needed to write it.
        (self.folder / "cassandra.yaml").write_text(json.dumps(self._settings(), indent=2))
        (self.folder / "logback.xml").write_text(LOGGING)

    def _settings(self) -> dict[str, object]:
        folders = {
            f"{name}_directory": str(self.folder / name)
            for name in ("hints", "commitlog", "cdc_raw", "saved_caches")
        }
        seeds = {
            "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
            "parameters": [{"seeds": ",".join(f"{seed}:{self.storage_port}" for seed in self.seeds)}],
        }
        settings = (
            {
                "cluster_name": "shardq",
                "num_tokens": 16,
                "allocate_tokens_for_local_replication_factor": 1,
                "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
                "authenticator": "PasswordAuthenticator" if self.authenticated else "AllowAllAuthenticator",
                "authorizer": "CassandraAuthorizer" if self.authenticated else "AllowAllAuthorizer",
                "endpoint_snitch": "SimpleSnitch",
                "listen_address": self.address,
                "rpc_address": self.address,
                "native_transport_port": self.port,
                "storage_port": self.storage_port,
                "seed_provider": [seeds],
                "auto_bootstrap": False,
                "commitlog_sync": "periodic",
                "commitlog_sync_period": "10000ms",
                "data_file_directories": [str(self.folder / "data")],
                "paxos_variant": self.paxos,
                "tombstone_warn_threshold": min(1000, self.tombstones),
                "tombstone_failure_threshold": self.tombstones,
                "concurrent_reads": 16,
                "concurrent_writes": 16,
                "concurrent_compactors": 1,
                "memtable_heap_space": "192MiB",
                "memtable_offheap_space": "64MiB",
                "file_cache_size": "64MiB",
                "key_cache_size": "16MiB",
                "commitlog_segment_size": "32MiB",
                "commitlog_total_space": "256MiB",  # 8 GiB otherwise, which an hour does not fill
            }
            | folders
            | (self._encryption(self.tls) if self.tls else {})
            | dict(self.settings)
        )
        return {name: value for name, value in settings.items() if value is not None}

    def _encryption(self, folder: Path) -> dict[str, object]:
        factory = {
            "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory",
            "parameters": {
                "private_key": (folder / "server.pem").read_text(),
                "trusted_certificates": (folder / "ca.pem").read_text(),
            },
        }
        options = {"enabled": True, "require_client_auth": True, "ssl_context_factory": factory}
        return {"client_encryption_options": options}

    def _command(self, jars: Sequence[Path]) -> list[str]:
        properties = {
            "cassandra.storagedir": self.folder,
            "cassandra.config": (self.folder / "cassandra.yaml").as_uri(),
            "logback.configurationFile": self.folder / "logback.xml",
            "cassandra.ring_delay_ms": 2000,
            "cassandra.skip_wait_for_gossip_to_settle": 0,
            "cassandra.superuser_setup_delay_ms": 100,
            "java.net.preferIPv4Stack": "true",
            "io.netty.transport.estimateSizeOnSubmit": "false",
            "jdk.attach.allowAttachSelf": "true",
        }
        return [
            "java",
            f"-Xms{self.heap}",
            f"-Xmx{self.heap}",
            "-XX:+UseSerialGC",
            f"-XX:TieredStopAtLevel={1 if self.short_lived else 4}",
            "-XX:+HeapDumpOnOutOfMemoryError",
            f"-XX:HeapDumpPath={self.folder}",
            *(f"-D{name}={value}" for name, value in properties.items()),
            *self.java,
            *(f"--add-exports={module}=ALL-UNNAMED" for module in EXPORTS),
            *(f"--add-opens={module}=ALL-UNNAMED" for module in OPENS),
            "-cp",
            ":".join(map(str, jars)),
            "org.apache.cassandra.service.CassandraDaemon",
        ]
