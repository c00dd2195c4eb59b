"""How the modules of the package import each other."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import shardq

FOLDER = Path(shardq.__file__).parent


def modules() -> dict[str, Path]:
    """Every module of the package, by name."""
    found = {}
    for path in FOLDER.rglob("*.py"):
        parts = path.relative_to(FOLDER.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_by(path: Path, names: set[str]) -> Iterator[str]:
    """What a module imports of the package, for types only and within functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from names.intersection(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in names else node.module


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    assert len(known) > 100
    graph = {name: set(imported_by(path, set(known))) for name, path in known.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(known)


def test_modules_may_be_imported_in_any_order() -> None:
    names = sorted(name for name in modules() if not name.endswith("__main__"))
    for order in (names, names[::-1]):
        program = "\n".join(f"import {name}" for name in order)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
