"""Decoders of structs are made with their modules.

msgspec describes a struct when it is first decoded, and a second thread that decodes it meanwhile reads what is not
filled in yet: the process ends with a segmentation fault (0.22). Modules are imported by one thread at a time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "shardq"
OF_ONE_THREAD = {"spark", "service"}  # their processes decode in no other, the service in its event loop
OTHERWISE = {
    "tasks/arguments.py": [
        "_decoder",
        "readable",
    ],  # under a lock: types that are known when a task is defined
    "django/backend.py": [
        "attempts_before",
        "_attempts",
    ],  # their module makes a decoder of the same types
}


def typed_calls(node: ast.AST, function: str = "") -> Iterator[str]:
    """The functions that decode into a type, or make a decoder for one, when they are called."""
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef) else function
        if name and isinstance(child, ast.Call) and ast.unparse(child.func).startswith("msgspec."):
            called = ast.unparse(child.func).rpartition(".")[2]
            typed = any(word.arg == "type" for word in child.keywords)
            if called in ("convert", "Decoder") or (called == "decode" and typed):
                yield name
        yield from typed_calls(child, name)


def test_no_function_is_the_first_to_decode_a_struct() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in OF_ONE_THREAD
        and (names := list(typed_calls(ast.parse(path.read_text()))))
    }
    assert found == OTHERWISE
