"""The files of tests have different names: pytest takes two of one name for one module, and skips the second."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def test_no_two_files_of_tests_have_one_name() -> None:
    names = Counter(file.name for file in Path(__file__).parents[1].rglob("test_*.py"))
    assert not {name for name, times in names.items() if times > 1}
