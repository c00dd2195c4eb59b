"""Builds the wheel and the source distribution into dist/, and uses them as somebody who installs them does.

    python tools/distribution.py

It publishes nothing: `twine upload dist/*` does. Needs `build` and `twine` (dependency group `release`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
USE = """
import shardq
with shardq.connect("sqlite:///queue.db") as client:
    queue = client.create_queue("letters")
    queue.producer().send(b"dear sir")
    queue.consumer().receive(1).ack()
    assert queue.peek() == []
print("shardq", shardq.__file__)
"""
NEEDED_BY_TESTS = (
    "tests/conftest.py",
    "tools/servers/mongodb.py",
    "docs/guide/index.md",
    "Makefile",
    "CONTRIBUTING.md",
    "budgets.toml",
)


def run(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a command; end with its exit code when it fails."""
    print("$", *command, flush=True)
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(word) for word in command], cwd=folder, env=surroundings, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def build() -> tuple[Path, Path]:
    """Make both anew, the wheel from the source distribution; returns their paths."""
    for old in DIST.glob("shardq-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", DIST)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    return wheel, source


def check_wheel(wheel: Path, folder: Path) -> None:
    """Install it into an empty environment, send and receive, and ask the command for help."""
    venv.create(folder / "venv", with_pip=True)
    python, command = folder / "venv/bin/python", folder / "venv/bin/shardq"
    run(python, "-m", "pip", "install", "--quiet", wheel)
    run(python, "-W", "error", "-c", USE, folder=folder)
    run(command, "--version", folder=folder)
    run(command, "--help", folder=folder)
    run(command, "list", "--url", "sqlite:///queue.db", folder=folder)


def check_source(source: Path, folder: Path) -> None:
    """Unpack it and let its own tests be found: they need the tools, and the tools each other."""
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.glob("shardq-*")
    missing = [name for name in NEEDED_BY_TESTS if not (unpacked / name).exists()]
    if missing:
        sys.exit(f"{source.name} lacks {', '.join(missing)}")
    run(sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", folder=unpacked)


def main() -> None:
    """Build and check."""
    wheel, source = build()
    with tempfile.TemporaryDirectory() as folder:
        check_wheel(wheel, Path(folder))
        check_source(source, Path(folder))
    print(f"{wheel.name} and {source.name} are in dist/; `twine upload dist/*` publishes them")


if __name__ == "__main__":
    main()
