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
STORES = ("sqlite", "cassandra", "mongodb")
CODE = re.compile(r"`([^`\n]+)`")
PATHS = sorted({code for code in CODE.findall(PAGE) if "/" in code and " " not in code and "://" not in code})


def files(path: str) -> list[Path]:
    """The files of a path; ``<store>`` in it stands for the folder of each store."""
    return [ROOT / path.replace("<store>", store) for store in STORES] if "<store>" in path else [ROOT / path]


def named() -> Iterator[tuple[str, str]]:
    """Every name of a table that stands in the cell after a file's."""
    for row in rows(PAGE):
        for cell, following in pairwise(row):
            path = CODE.fullmatch(cell)
            if path and path[1].endswith(".py"):
                yield from ((path[1], name) for name in CODE.findall(following))


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """The functions, classes and constants of a file; those of a class with its name before them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name
            yield from definitions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_the_page_exists(path: str) -> None:
    assert [file for file in files(path) if not file.exists()] == []


@pytest.mark.parametrize(("path", "name"), sorted(set(named())))
def test_a_name_of_the_page_is_defined_in_the_file_beside_it(path: str, name: str) -> None:
    for file in files(path):
        assert name in set(definitions(ast.parse(file.read_text()))), file


def test_a_stranger_finds_ten_behaviours() -> None:
    table = PAGE.split("## Where is ...?")[1].split("\n## ")[0]
    assert sum(row[0].endswith("?") for row in rows(table)) >= 10
