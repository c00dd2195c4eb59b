"""What mypy and pyright tell those who use the package: a wrong setting is an error, a right one is none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shardq

RIGHT = Path(__file__).with_name("an_application.py").read_text()
WRONG = """\
    shardq.conect("sqlite:///queue.db")
    client.create_queue("orders", shard=4)
    client.create_queue("orders", shards="4")
    client.create_queue("orders", exist_okay=True)
    queue.alter(visibility_timout=30)
    queue.alter(retention="7d")
    queue.alter({"shards": 4})
    Worker(queue, charge_all)
    Worker(queue, charge, by_batch=True)
    Worker(queue, charge, idle_exits=0)
"""


def found_by_mypy(file: Path) -> tuple[set[int], str]:
    """The lines with an error in them, and everything that was said."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"]
    command += [
        "--hide-error-context",
        "--no-pretty",
        "--config-file=",
        "--cache-dir",
        str(file.parent),
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file.parent)
    found = re.findall(r"^calls\.py:(\d+): error", done.stdout, re.MULTILINE)
    return set(map(int, found)), done.stdout + done.stderr


def found_by_pyright(file: Path) -> tuple[set[int], str]:
    """The lines with an error in them, and everything that was said."""
    package = str(Path(shardq.__file__).parents[1])
    config = {
        "typeCheckingMode": "strict",
        "include": [file.name],
        "extraPaths": [package],
    }
    (file.parent / "pyrightconfig.json").write_text(json.dumps(config))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(file.parent),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("{"), f"pyright could not be run: {done.stderr}"
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found}, done.stdout + done.stderr


@pytest.mark.parametrize("check", [found_by_mypy, found_by_pyright])
def test_a_type_checker_finds_each_misspelled_or_mistyped_argument_and_nothing_else(
    tmp_path: Path, check
) -> None:
    file = tmp_path / "calls.py"
    file.write_text(f"{RIGHT}\n\ndef mistaken(client: shardq.Client, queue: shardq.Queue) -> None:\n{WRONG}")
    lines = len(file.read_text().splitlines())
    found, said = check(file)
    assert found == set(range(lines - len(WRONG.splitlines()) + 1, lines + 1)), said


@pytest.mark.parametrize("name", shardq.__all__)
def test_the_application_that_is_checked_uses_every_public_name(name: str) -> None:
    assert re.search(rf"shardq\.{name}\b", RIGHT)
