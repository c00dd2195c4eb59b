"""The source distribution holds what its own tests need."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("test_sdist")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the source distribution holds."""
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def test_every_test_of_an_unpacked_source_distribution_can_be_collected(unpacked: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]

    done = subprocess.run(
        command, cwd=unpacked, env=environment, check=False, capture_output=True, text=True, timeout=250
    )

    assert done.returncode == 0, done.stdout[-4_000:]
    here = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    assert {path.relative_to(unpacked) for path in (unpacked / "tests").rglob("test_*.py")} == here


def test_the_source_distribution_holds_what_the_makefile_runs(unpacked: Path) -> None:
    makefile = (unpacked / "Makefile").read_text()
    tools = {word for word in makefile.split() if word.startswith("tools/") and "$" not in word}

    assert tools and all((unpacked / tool).exists() for tool in tools)
