"""A cluster of three servers on this computer, which a tool of ``tools/servers`` starts, behind proxies."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from shardq.testing import RawQueue
from tools.audit.cassandra_rows import read_cassandra
from tools.audit.mongodb_documents import read_mongodb
from tools.audit.postgresql_rows import read_postgresql

from .disk import Disk
from .proxy import Proxy
from .target import Target

__all__ = ["CassandraTarget", "MongodbTarget", "PostgresqlTarget"]

ATTEMPTS = 3
SERVERS = Path(__file__).parents[1] / "servers"


class _ServerTarget:
    name: str
    options: ClassVar[tuple[str, ...]]
    query: ClassVar[str]
    nodes = 3
    patience = 60.0
    huge = 200_000
    fault_seconds: float
    gap: float
    rest: float
    lease = 6.0
    lasting = 4.0
    tolerance = 0.5
    goes_by_client_clock = False
    has_backups = False
    disk: Disk | None = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "nodes"
        self.url = ""
        self.proxies: list[Proxy] = []
        self.detours: dict[str, tuple[str, int]] = {}

    @property
    def clients_url(self) -> str:
        return self.url

    def start(self) -> None:
        url = self._tool("start", *self.options)
        self.url = url + ("&" if "?" in url else "?") + self.query
        for number, host in enumerate(urlsplit(url).netloc.rpartition("@")[2].split(","), start=1):
            address, port = host.split(":")
            proxy = Proxy((address, int(port)), f"127.0.1.{number}")
            self.proxies.append(proxy)
            self.detours[host] = proxy.address

    def stop(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self._tool("stop")

    def restart(self) -> None:
        for _ in range(ATTEMPTS - 1):  # a node may not answer in time on a busy computer, and is ended then
            with suppress(RuntimeError):
                self._tool("start", *self.options)
                return
        self._tool("start", *self.options)

    def node(self, victim: float) -> int:
        return int(victim * self.nodes)

    def pid(self, node: int) -> int:
        host = list(self.detours)[node]
        return int((self._folder / self._folder_of(host) / "pid").read_text())

    def beside(self, folder: Path) -> Target:
        raise NotImplementedError("the servers have their own backups")

    @property
    def _database(self) -> str:
        return urlsplit(self.url).path.strip("/")

    def _folder_of(self, host: str) -> str:
        raise NotImplementedError

    def _tool(self, *words: str) -> str:
        command = [sys.executable, str(SERVERS / f"{self.name}.py"), *words, "--folder", str(self._folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {done.stderr.strip()}")
        return done.stdout.strip()


class CassandraTarget(_ServerTarget):
    """Three nodes, each on an address of its own, three copies of everything."""

    name = "cassandra"
    # Every node is started again in most rounds.
    options = ("--nodes", "3", "--heap", "512m", "--short-lived")
    query = "consistency=LOCAL_QUORUM&replication=datacenter1:3&timeout=4"
    fault_seconds = 50.0
    gap = 1.6
    rest = 8.0  # until a node that was ended answers again

    def _folder_of(self, host: str) -> str:
        return host.partition(":")[0]

    def read(self, queue: str) -> RawQueue:
        from cassandra import ConsistencyLevel  # noqa: PLC0415 -- only this target needs the driver
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile  # noqa: PLC0415

        hosts, ports = zip(*(host.split(":") for host in self.detours), strict=True)
        profile = ExecutionProfile(consistency_level=ConsistencyLevel.ALL, request_timeout=30)
        profiles = {EXEC_PROFILE_DEFAULT: profile}
        with Cluster(hosts, port=int(ports[0]), execution_profiles=profiles) as cluster:
            return read_cassandra(cluster.connect(), self._database, queue)


class MongodbTarget(_ServerTarget):
    """A replica set of three members, each on a port of its own. Every second victim is the primary."""

    name = "mongodb"
    options = ("--members", "3", "--cache", "0.25")
    query = "serverSelectionTimeoutMS=4000&socketTimeoutMS=4000&connectTimeoutMS=4000"
    fault_seconds = 30.0
    gap = 1.0
    rest = 4.0

    def node(self, victim: float) -> int:
        return self._primary() if victim < 0.5 else int((victim - 0.5) * 2 * self.nodes)

    def _primary(self) -> int:
        """The member that takes writes now; the first where there is none."""
        from pymongo import MongoClient  # noqa: PLC0415 -- only this target needs the driver
        from pymongo.errors import PyMongoError  # noqa: PLC0415

        for number, host in enumerate(self.detours):
            try:
                member: MongoClient[dict[str, Any]] = MongoClient(
                    f"mongodb://{host}/?directConnection=true&timeoutMS=1000"
                )
                with member:
                    if member.admin.command("hello").get("isWritablePrimary"):
                        return number
            except PyMongoError:
                continue
        return 0

    def _folder_of(self, host: str) -> str:
        return host.partition(":")[2]

    def read(self, queue: str) -> RawQueue:
        from pymongo import MongoClient  # noqa: PLC0415

        client: MongoClient[dict[str, Any]] = MongoClient(self.url)
        with client:
            return read_mongodb(client[self._database], queue)


class PostgresqlTarget(_ServerTarget):
    """One server, with fsync. While it is ended, paused or cut off nobody can do anything."""

    name = "postgresql"
    options = ("--set", "log_min_messages=fatal")
    query = "connect_timeout=4&timeout=4&tcp_user_timeout=4000&schema=shardq"
    nodes = 1
    fault_seconds = 30.0
    gap = 1.0
    rest = 4.0

    @property
    def clients_url(self) -> str:
        """Its driver connects by a library in C, which no detour reaches."""
        ((host, (address, port)),) = self.detours.items()
        return self.url.replace(host, f"{address}:{port}")

    def _folder_of(self, host: str) -> str:
        return host.partition(":")[2]

    def read(self, queue: str) -> RawQueue:
        return read_postgresql(self.url.partition("?")[0], "shardq", queue)
