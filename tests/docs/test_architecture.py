"""What the architecture page names is there: every path, and every function and class in the file beside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, rows

PAGE = (DOCS / "architecture.md").read_text()
STORES = ("sqlite", "cassandra", "mongodb", "postgresql")
CODE = re.compile(r"`([^`\n]+)`")
PATHS = sorted({code for code in CODE.findall(PAGE) if "/" in code and " " not in code and "://" not in code})


def files(path: str) -> list[Path]:
    """The files of a path; ``<store>`` in it stands for the folder of each store."""
    return [ROOT / path.replace("<store>", store) for store in STORES] if "<store>" in path else [ROOT / path]


def named() -> Iterator[tuple[tuple[str, ...], str]]:
    """Every name of a table that stands in the cell after that of files, and the files."""
    for row in rows(PAGE):
        for cell, following in pairwise(row):
            paths = tuple(CODE.findall(cell))
            if paths and all(path.endswith(".py") for path in paths) and not CODE.sub("", cell).strip(", "):
                yield from ((paths, name) for name in CODE.findall(following))


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """The functions, classes and constants of a file; those of a class with its name before them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
            yield from definitions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def defined(file: Path) -> set[str]:
    return set(definitions(ast.parse(file.read_text())))


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_the_page_exists(path: str) -> None:
    assert [file for file in files(path) if not file.exists()] == []


@pytest.mark.parametrize(("paths", "name"), sorted(set(named())))
def test_a_name_of_the_page_is_defined_in_a_file_beside_it(paths: tuple[str, ...], name: str) -> None:
    """In each of the stores' files, where the path stands for those of all stores."""
    found = [all(name in defined(file) for file in files(path)) for path in paths]
    assert any(found)


def test_a_stranger_finds_ten_behaviours() -> None:
    table = PAGE.split("## Where is ...?")[1].split("\n## ")[0]
    assert sum(row[0].endswith("?") for row in rows(table)) >= 10
