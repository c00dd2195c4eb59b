"""The wheel holds everything that the library needs, and nothing of the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import shardq

pytestmark = pytest.mark.xdist_group("test_wheel")

ROOT = Path(__file__).parents[2]

USE = """
import pathlib, sys
import shardq
assert pathlib.Path(shardq.__file__).is_relative_to(sys.argv[1]), shardq.__file__
with shardq.connect("sqlite:///wheel.db") as client:
    queue = client.create_queue("q")
    queue.producer().send(b"x")
    queue.consumer().receive(1).ack()
    print(queue.counts().ready)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the unpacked wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_a_queue_works_from_the_wheel_alone(site: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-W", "error", "-c", USE, str(site)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "0\n"


def test_the_wheel_carries_the_schema_the_types_and_the_licence(site: Path) -> None:
    names = {str(path.relative_to(site)) for path in site.rglob("*")}
    assert {"shardq/py.typed", "shardq/schema/sqlite/0001_queues.sql"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {"shardq/service/templates/base.html", "shardq/service/static/dashboard.js"} <= names
    assert {"shardq/service/static/NOTICE", "shardq/service/static/LICENSE.htmx"} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "shardq",
        "pyspark_shardq.py",
        "pytest_shardq.py",
    }


def test_the_extra_for_testing_brings_what_the_conformance_suite_imports(site: Path) -> None:
    (metadata,) = site.glob("*.dist-info/METADATA")
    requirements = [
        line.partition(": ")[2]
        for line in metadata.read_text().splitlines()
        if line.startswith("Requires-Dist") and "extra == 'testing'" in line
    ]
    assert sorted(re.split(r"[^a-z]", each)[0] for each in requirements) == ["hypothesis", "pytest"]


def test_a_command_imports_nothing_that_only_plots_or_tests_need(site: Path, tmp_path: Path) -> None:
    code = (
        "import sys, shardq, shardq.worker, shardq.cli.commands.bench, shardq.testing\n"
        "from shardq.cli.main import main\n"
        "try:\n    main(['list'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'matplotlib', 'pandas', 'pytest', 'hypothesis'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(site), "SHARDQ_URL": f"sqlite:///{tmp_path}/queue.db"}
    with shardq.connect(environment["SHARDQ_URL"]) as client:
        client.create_queue("letters")

    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "[]"
