"""Places where Spark runs on this computer, each with processes of its own, which end with the block."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pyspark

__all__ = ["connect_server", "local_cluster", "standalone_cluster"]

HOME = Path(pyspark.__file__).parent
START_SECONDS = 300.0
DAEMONS = {
    "SPARK_DAEMON_MEMORY": "512m",
    "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",  # it would listen on a port that is always the same
}


@contextmanager
def local_cluster(_folder: Path) -> Iterator[str]:
    """Two executors that are processes. Spark puts their work folders beside its own files: they are removed."""
    work = HOME / "work"
    before = set(work.glob("*"))
    try:
        yield "local-cluster[2,1,1024]"
    finally:
        _remove(set(work.glob("*")) - before, work)


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """A master and two workers, which have addresses of their own: Spark speculates on another host only."""
    port, page = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        command = ["Master", "-h", "127.0.0.1", "-p", str(port), "--webui-port", str(page)]
        running.enter_context(_daemon(folder, command, "127.0.0.1"))
        wait_for_port("127.0.0.1", port)
        for host in ("127.0.0.1", "127.0.0.2"):
            options = ["-h", host, "-c", "1", "-m", "1g", "--webui-port", str(free_port())]
            command = ["Worker", *options, "--work-dir", str(folder / host), master]
            running.enter_context(_daemon(folder, command, host))
        yield master


@contextmanager
def connect_server(
    folder: Path, *, python: str = sys.executable, package: Path | None = None
) -> Iterator[str]:
    """A Spark Connect server on two cores; its tasks run in ``python``, with a package that comes as a zip file."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [str(HOME / "sbin" / "start-connect-server.sh"), "--wait", "--master", "local[2,3]", *conf]
    places = {"SPARK_LOG_DIR": str(folder), "SPARK_PID_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    places |= {"PYSPARK_PYTHON": python}  # of the server, not of its clients
    if package is not None:
        # --py-files reaches the tasks, but not the processes that plan them
        command += ["--py-files", str(package)]
        places |= {"PYTHONPATH": str(package)}
    with _process(folder, "connect", command, places):
        wait_for_port("127.0.0.1", port)
        yield f"sc://127.0.0.1:{port}"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(host: str, port: int) -> None:
    """Return when somebody listens on it."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"nobody listened on {host}:{port} within {START_SECONDS:.0f} s: see the logs")
        time.sleep(0.2)


def _daemon(folder: Path, command: Sequence[str], host: str) -> AbstractContextManager[None]:
    kind, *options = command
    name = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
    words = [str(HOME / "bin" / "spark-class"), name, *options]
    return _process(folder, f"{kind.lower()}-{host}", words, {"SPARK_LOCAL_IP": host})


@contextmanager
def _process(folder: Path, name: str, command: Sequence[str], places: Mapping[str, str]) -> Iterator[None]:
    """A process whose descendants end with it."""
    surroundings = os.environ | DAEMONS | {"SPARK_HOME": str(HOME), **places}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=surroundings, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session, and all in it."""
    for signal_number in (15, 9):
        try:
            os.killpg(process.pid, signal_number)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _remove(folders: set[Path], parent: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    if parent.exists() and not any(parent.iterdir()):
        parent.rmdir()
