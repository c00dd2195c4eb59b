"""Servers that tests run on: started on this computer by the tools of this repository, or looked for in Docker.

A server that cannot be had fails the tests in CI and skips them on a laptop.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

TOOLS = Path(__file__).parents[1] / "tools" / "servers"
ALONE = "alone"
VARIABLE = "SHARDQ_TEST_SERVERS"
"""The folder of the servers that all processes of a test run share."""


def docker_answers() -> bool:
    """True when tests can start containers."""
    if shutil.which("docker") is None or find_spec("testcontainers") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def worker() -> str:
    """The name of this process among those that run the tests."""
    return os.environ.get("PYTEST_XDIST_WORKER", ALONE)


@contextmanager
def local_server(
    name: str, *options: str, restore: Callable[[Path], object] | None = None
) -> Iterator[tuple[str, Path]]:
    """Servers on this computer that are stopped at the end: their URL, and the folder that holds one for each.

    ``restore`` is called with the folder before they start, and puts data of other servers there.
    """
    with tempfile.TemporaryDirectory(prefix=f"shardq-{name}-") as folder:
        if restore is not None:
            restore(Path(folder))
        started = _run(name, "start", Path(folder), *options)
        if started.returncode and restore is not None:
            pytest.fail(started.stderr)
        if started.returncode:
            do_without(f"no {name} could be started: {started.stderr.strip()}")
        try:
            yield started.stdout.strip(), Path(folder)
        finally:
            _run(name, "stop", Path(folder)).check_returncode()


def start_again(name: str, folder: Path, *options: str) -> None:
    """Start those local servers that have ended, with the options of before."""
    _run(name, "start", folder, *options).check_returncode()


def server_pid(folder: Path, port: int) -> int:
    """Return the process of a local server."""
    return int((folder / str(port) / "pid").read_text())


def lasting_server(name: str, *options: str, among: str = "all") -> str:
    """The URL of servers on this computer that run until the tests have ended.

    They are started once for those who ask with the same words; ``among`` tells apart who shall not share them.
    """
    folder = Path(os.environ[VARIABLE]) / f"{among}{''.join(options)}" / name
    folder.mkdir(parents=True, exist_ok=True)
    answer = folder / "answer"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            started = _run(name, "start", folder, *options)
            answer.write_text(started.stdout if started.returncode == 0 else f"!{started.stderr}")
    said = answer.read_text().strip()
    if said.startswith("!"):
        do_without(f"no {name} could be started: {said[1:].strip()}")
    return said


def begin_lasting_servers() -> Path | None:
    """Make the folder of lasting servers; None in a process that shares that of another."""
    if VARIABLE in os.environ:
        return None
    os.environ[VARIABLE] = tempfile.mkdtemp(prefix="shardq-servers-")
    return Path(os.environ[VARIABLE])


def end_lasting_servers(folder: Path) -> None:
    """Stop all of them."""
    for started in folder.glob("*/*"):
        _run(started.name, "stop", started)
    shutil.rmtree(folder, ignore_errors=True)
    del os.environ[VARIABLE]


def _run(name: str, action: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    tool = [sys.executable, str(TOOLS / f"{name}.py"), action, "--folder", str(folder), *options]
    return subprocess.run(tool, capture_output=True, text=True, check=False)


def do_without(missing: str) -> NoReturn:
    """Skip a test that lacks something on this machine. In CI it fails."""
    if os.environ.get("CI"):
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)
