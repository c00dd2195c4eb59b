"""The words of errors."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest

import shardq
from shardq.wording import kind_of, shown


@pytest.mark.parametrize(
    ("value", "words"),
    [(1, "an int"), (object(), "an object"), ("a", "a str"), (uuid4(), "a UUID"), (None, "a NoneType")],
)
def test_a_kind_has_its_article(value: object, words: str) -> None:
    assert kind_of(value) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "'a'"), (10**5000, "<int>"), ("x" * 300, "'" + "x" * 199 + "...")],
    ids=["short", "not to be written", "long"],
)
def test_a_value_is_shown_in_short(value: object, text: str) -> None:
    assert shown(value) == text


def test_no_error_makes_an_article_of_its_own_for_the_type_of_a_value() -> None:
    own = re.compile(r"\ban? \{type\(")
    files = Path(shardq.__file__).parent.rglob("*.py")
    assert [file.name for file in files if own.search(file.read_text(encoding="utf-8"))] == []
