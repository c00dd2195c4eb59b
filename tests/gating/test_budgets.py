"""The tool that holds the project to its budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import budgets

TEXT = """# why
[lines]
client = 400  # it has the public methods
gone = 50

[calls]
send = 30

[minutes]
test = 10
"""


def test_a_figure_above_its_budget_or_without_one_is_named() -> None:
    told = budgets.exceeded({"calls": {"send": 30}}, {"calls": {"send": 31, "pop": 5}})
    assert told == ["calls.send is 31, its budget 30", "calls.pop is 5, its budget is missing"]


def test_budgets_are_lowered_with_their_reasons_and_never_raised() -> None:
    found = {"lines": {"client": 301}, "calls": {"send": 31}}
    expected = TEXT.replace("client = 400", "client = 350").replace("gone = 50\n", "")
    assert budgets.lowered(TEXT, found) == expected


def test_imports_in_functions_and_of_types_make_cycles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "shardq"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("def later():\n    from shardq import two\n")
    (package / "two.py").write_text("if TYPE_CHECKING:\n    from shardq.three import name\n")
    (package / "three.py").write_text("import shardq.one\n")
    (package / "four.py").write_text("from . import one\n")
    (package / "five.py").write_text("from .four import x\n")
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.importlinter.contracts]]\ntype = "layers"\nlayers = ["one : two", "three"]\n'
    )
    monkeypatch.setattr(budgets, "ROOT", tmp_path)
    found = budgets.structure()
    assert (found["cycles"], found["modules_in_cycles"], found["layers"]) == (1, 3, 2)
    assert found["modules_outside_layers"] == 2  # four and five


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("queue._context", 1),
        ("self._context", 0),
        ("cls._known", 0),
        ("a()._b._c", 2),
        ("x.__dict__", 0),
        ("module._UPPER", 1),
        ("itself._x", 1),
        ("from module import _x, y", 1),
        ("getattr(queue, '_context')", 1),
        ("monkeypatch.setattr('a.b._x', 1)", 1),
        ("patch.object(kind, '_method')", 1),
        ("setattr(queue, 'name', '_x y')", 0),
        ("print('_context')", 0),
        ("os._exit(1)", 0),
    ],
)
def test_private_names_of_other_objects_are_counted(
    line: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(line)
    monkeypatch.setattr(budgets, "ROOT", tmp_path)
    assert budgets.private_accesses()["all"] == count
