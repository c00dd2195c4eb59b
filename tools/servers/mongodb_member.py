"""One member of a local MongoDB: its folder, its options, its process."""

from __future__ import annotations

import resource
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mongodb_binary import mongod
from server_process import ServerProcess

ADDRESS = "127.0.0.1"
SET = "shardq"
USER, PASSWORD = "root", "secret"
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Member:
    """A server on a port of its own; everything that it writes is in its folder."""

    folder: Path
    port: int
    in_set: bool = False
    cache: str = "0.5"
    open_files: int = 0  # that it may open; as many as possible, as it ends itself when these are too few
    failpoints: bool = False
    authenticated: bool = False
    key: Path | None = None
    tls: Path | None = None  # a folder with server.pem (key and certificates) and ca.pem (who signs clients)

    def start(self) -> None:
        """Start it and return when it takes connections; raises RuntimeError when it does not."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        _allow_files(self.open_files)
        ServerProcess(self.folder).start(self._command(), self.answers, patience=PATIENCE)

    def answers(self) -> bool:
        """True when it takes connections."""
        try:
            socket.create_connection((ADDRESS, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def client_options(self) -> dict[str, Any]:
        """What a client of this member alone needs."""
        encrypted = {
            "tls": True,
            "tlsCAFile": f"{self.tls}/ca.pem",
            "tlsCertificateKeyFile": f"{self.tls}/server.pem",
        }
        return {"host": ADDRESS, "port": self.port, "directConnection": True} | (
            encrypted if self.tls else {}
        )

    def _command(self) -> list[str]:
        parameters = {
            "diagnosticDataCollectionEnabled": "false",
            "shutdownTimeoutMillisForSignaledShutdown": "100",
        }
        if self.failpoints:
            parameters["enableTestCommands"] = "1"
            parameters["transactionLifetimeLimitSeconds"] = "2"  # of clients that were killed
        return [
            str(mongod()),
            *("--dbpath", str(self.folder / "data"), "--bind_ip", ADDRESS, "--port", str(self.port)),
            *("--quiet", "--nounixsocket", "--wiredTigerCacheSizeGB", self.cache),
            *(word for each in parameters.items() for word in ("--setParameter", "=".join(each))),
            *(("--replSet", SET, "--oplogSize", "512") if self.in_set else ()),
            *(("--auth",) if self.authenticated else ()),
            *(("--keyFile", str(self.key)) if self.key else ()),
            *self._encryption(),
        ]

    def _encryption(self) -> list[str]:
        if self.tls is None:
            return []
        return [
            *("--tlsMode", "requireTLS", "--tlsCAFile", str(self.tls / "ca.pem")),
            *("--tlsCertificateKeyFile", str(self.tls / "server.pem")),
        ]


def _allow_files(number: int) -> None:
    """Let processes that begin from now on open so many; 0: as many as this user may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number or most, most))
