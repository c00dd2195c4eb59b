"""A parameter without an annotation is told when the task is made: what it takes may arrive as another type."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from shardq.tasks import Tasks


def test_a_parameter_without_an_annotation_warns_where_the_function_is(tasks: Tasks) -> None:
    with pytest.warns(
        UserWarning, match="task 'ship' has parameters without a type, sizes, rest, more:"
    ) as told:

        @tasks.task
        def ship(order: int, sizes, *rest, more=1) -> None: ...

    assert [each.filename for each in told] == [__file__]
    with pytest.warns(
        UserWarning, match="task 'f' has parameters without a type, x: .*such as x: int, or x: Any"
    ):
        tasks.task(name="f")(lambda x: x)


def test_annotated_parameters_warn_of_nothing(tasks: Tasks) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @tasks.task
        def ship(order: int, anything: Any, *rest: tuple[int, int], **more: object) -> None: ...


def test_what_is_annotated_keeps_its_type(tasks: Tasks) -> None:
    seen: list[object] = []

    @tasks.task
    def note(typed: tuple[int, int], plain: Any) -> None:
        seen.extend((typed, plain))

    note.send((1, 2), (1, 2))
    tasks.drain()
    assert seen == [(1, 2), [1, 2]]
