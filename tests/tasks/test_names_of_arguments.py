"""An argument of a task may have any name, also one that shardq uses itself."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.tasks import Tasks, chain

NAMES = [
    "self",
    "cls",
    "args",
    "kwargs",
    "task",
    "function",
    "name",
    "body",
    "options",
    "queue",
    "timeout",
    "what",
    "class_",
]


@pytest.mark.parametrize("name", NAMES)
def test_keywords_of_any_name_are_sent(tasks: Tasks, name: str) -> None:
    @tasks.task
    def note(**fields: int) -> dict[str, int]:
        return fields

    given: Any = {name: 2, "a": 1}
    results = [note.send(**given), note.signature(**given).send()]
    tasks.drain()
    assert [each.get(timeout=0) for each in results] == [given, given]
    assert (note(**given), note.call(**given)) == (given, given)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_of_any_name_are_sent_and_taken_by_steps(tasks: Tasks, name: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def note(first: int, {name}: int = 0) -> int: return first + {name}", names)
    exec(f"def only({name}: int) -> int: return {name}", names)
    note, only = tasks.task(names["note"]), tasks.task(names["only"])
    given: Any = {name: 2}
    results: list[Any] = [only.send(**given), chain(note.signature(1), note.then(**given)).send()]
    keyed = only.options(unique_key=lambda **given: str(given[name]), group=lambda **given: "g")
    results.append(keyed.send(**given))
    tasks.drain()
    assert [each.get(timeout=0) for each in results] == [2, 3, 2]
    assert only.map([1, 2]).send().id
