"""Runs tests on each Python version that shardq supports, and says which could not be had.

    python tools/pythons.py [--require] [--versions 3.11,3.13] -- -m "not long"

An interpreter is one of pyenv's, or one that uv finds or downloads. Each version gets an environment of its own in
var/pythons/. With --require a version that cannot be had is a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")


def uv() -> str:
    """The command; it is in the environment of this interpreter, or on the path."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        sys.exit("there is no uv: pip install --group pythons")
    return found


def interpreter(version: str) -> str:
    """One of pyenv's, which uv does not look at unless it is switched on; else the version, for uv to find."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted(root.glob(f"versions/{version}.*/bin/python"))
    return str(found[-1]) if found else version


def environment(version: str) -> Path | None:
    """An environment with the tests' dependencies; None where there is no such interpreter."""
    folder = ROOT / "var" / "pythons" / version
    made = subprocess.run(
        [uv(), "venv", "--quiet", "--allow-existing", "--python", interpreter(version), str(folder)],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        print(f"Python {version}: {made.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    python = folder / "bin" / "python"
    install = [
        uv(),
        "pip",
        "install",
        "--quiet",
        "--python",
        str(python),
        "--group",
        "test",
        "--editable",
        ".",
    ]
    subprocess.run(install, cwd=ROOT, check=True)
    return python


def run(version: str, arguments: list[str]) -> str:
    """Run the tests; returns what became of it."""
    print(f"== Python {version}", flush=True)
    python = environment(version)
    if python is None:
        return "not to be had"
    done = subprocess.run([str(python), "-m", "pytest", *arguments], cwd=ROOT, check=False)
    return "passed" if done.returncode == 0 else f"failed, exit code {done.returncode}"


def main() -> None:
    """Run them all, then say how each went."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--require", action="store_true", help="fail when a version cannot be had")
    parser.add_argument("--versions", default=",".join(VERSIONS), help="such as 3.11,3.13")
    known, arguments = parser.parse_known_args()
    arguments = [word for word in arguments if word != "--"]
    ends = {version: run(version, arguments) for version in known.versions.split(",")}
    for version, end in ends.items():
        print(f"Python {version}: {end}")
    bad = [end for end in ends.values() if end.startswith("failed") or (known.require and end != "passed")]
    sys.exit(1 if bad or "passed" not in ends.values() else 0)


if __name__ == "__main__":
    main()
