"""shardq runs from a zip file, as jobs bring it to a cluster."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import shardq
assert "shardq.zip" in shardq.__file__
with shardq.connect("sqlite:///queue.db") as client:
    client.create_queue("orders").producer().send(b"one")
    assert client.queue("orders").counts().ready == 1
"""


def test_a_package_in_a_zip_file_makes_its_schema(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "shardq.zip", "w") as package:
        for file in (ROOT / "shardq").rglob("*.py"):
            package.write(file, file.relative_to(ROOT))
        for file in (ROOT / "schema").rglob("*.*"):
            package.write(file, Path("shardq") / file.relative_to(ROOT))
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'shardq.zip')!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
