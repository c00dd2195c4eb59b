"""Servers that tests run on: started on this computer by the tools of this repository, or looked for in Docker.

A server that cannot be had fails the tests in CI and skips them on a laptop.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools" / "servers"


def docker_answers() -> bool:
    """True when tests can start containers."""
    if shutil.which("docker") is None or find_spec("testcontainers") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def local_server(name: str, *options: str) -> Iterator[tuple[str, Path]]:
    """Servers on this computer that are stopped at the end: their URL, and the folder that holds one for each."""
    with tempfile.TemporaryDirectory(prefix=f"shardq-{name}-") as folder:
        tool = [sys.executable, str(TOOLS / f"{name}.py")]
        started = subprocess.run(
            [*tool, "start", "--folder", folder, *options], capture_output=True, text=True, check=False
        )
        if started.returncode:
            missing = f"no {name} could be started: {started.stderr.strip()}"
            if os.environ.get("CI"):
                pytest.fail(missing, pytrace=False)
            pytest.skip(missing)
        try:
            yield started.stdout.strip(), Path(folder)
        finally:
            subprocess.run([*tool, "stop", "--folder", folder], check=True)
