"""The words of errors."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from uuid import uuid4

import pytest

import shardq
from shardq.base.texts import kind_of, shown


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


@pytest.mark.parametrize(
    "value",
    ["it's", b"x", bytearray(b"x"), [], [1, "a"], (), (1,), (1, [2]), set(), {1}, {}, {"a": {1: None}, 2: "b"}, 1.5],
    ids=repr,
)  # fmt: skip
def test_a_short_value_is_shown_as_python_writes_it(value: object) -> None:
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    "value",
    ["x" * 10**5, bytes(10**5), bytearray(10**5), [0] * 10**5, (0,) * 10**5, set(range(10**5)),
     dict.fromkeys(range(10**5)), [{"a": ("x" * 10**5,)}]],
    ids=["str", "bytes", "bytearray", "list", "tuple", "set", "dict", "nested"],
)  # fmt: skip
def test_of_a_large_value_no_more_is_written_than_is_shown(value: object) -> None:
    tracemalloc.start()
    text = shown(value)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(text), text[-3:]) == (203, "...")
    assert most < 50_000


def test_a_list_that_holds_itself_is_shown() -> None:
    value: list[object] = []
    value.append(value)
    assert shown(value).startswith("[[")


def test_no_error_makes_an_article_of_its_own_for_the_type_of_a_value() -> None:
    own = re.compile(r"\ban? \{type\(")
    files = Path(shardq.__file__).parent.rglob("*.py")
    assert [file.name for file in files if own.search(file.read_text(encoding="utf-8"))] == []


def test_no_error_writes_a_value_to_its_end_of_which_it_has_to_name_the_type() -> None:
    whole = re.compile(r"\{([\w.]+)!r\}[^{}]*\{kind_of\(\1\)\}")
    files = Path(shardq.__file__).parent.rglob("*.py")
    assert [file.name for file in files if whole.search(file.read_text(encoding="utf-8"))] == []
