"""Two tasks of an app never share a name, whatever made their functions. A module may be loaded again."""

from __future__ import annotations

import functools
import importlib
import runpy
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.tasks import Tasks


def scaled_by(factor: int) -> Callable[[int], int]:
    def scale(number: int) -> int:
        return factor * number

    return scale


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


def add(first: int, second: int) -> int:
    return first + second


def lambdas(tasks: Tasks) -> None:
    tasks.task(lambda: 1)
    tasks.task(lambda: 2)


def one_lambda_twice(tasks: Tasks) -> None:
    for number in range(2):
        tasks.task(lambda: number)  # noqa: B023 - that is the case


def factories(tasks: Tasks) -> None:
    tasks.task(scaled_by(2))
    tasks.task(scaled_by(3))


def factories_with_one_name(tasks: Tasks) -> None:
    tasks.task(name="double")(scaled_by(2))
    tasks.task(name="double")(scaled_by(3))


def wrapped_in_two_ways(tasks: Tasks) -> None:
    tasks.task(logged(add))
    tasks.task(add)


def redefined(tasks: Tasks) -> None:
    @tasks.task
    def job() -> int:
        return 1

    @tasks.task  # type: ignore[no-redef]
    def job() -> int:  # noqa: F811 - that is the case
        return 2


def static_methods(tasks: Tasks) -> None:
    for _ in range(2):

        class Shop:
            @staticmethod
            @tasks.task
            def ship() -> None: ...


def one_function_with_other_options(tasks: Tasks) -> None:
    tasks.task(retry=2)(add)
    tasks.task(retry=5)(add)


@pytest.mark.parametrize(
    "define",
    [
        lambdas,
        one_lambda_twice,
        factories,
        factories_with_one_name,
        wrapped_in_two_ways,
        redefined,
        static_methods,
        one_function_with_other_options,
    ],
)
def test_a_second_task_of_a_name_is_refused_whatever_made_its_function(
    tasks: Tasks, define: Callable[[Tasks], None]
) -> None:
    with pytest.raises(shardq.InvalidSetting, match=r"there are two tasks '.*@tasks\.task\(name=\.\.\.\)"):
        define(tasks)


@pytest.mark.parametrize("made", [functools.partial(add, 1), staticmethod(add)])
def test_what_is_no_function_is_refused_with_the_remedy(tasks: Tasks, made: Any) -> None:
    with pytest.raises(shardq.InvalidSetting, match="make a task of a function, such as a def that calls it"):
        tasks.task(made)


def test_tasks_of_a_factory_that_have_names_run_their_own_functions(tasks: Tasks) -> None:
    made = [tasks.task(name=f"times {factor}")(scaled_by(factor)) for factor in (2, 3)]
    results = [each.send(10) for each in made]
    tasks.drain()
    assert [each.get(timeout=0) for each in results] == [20, 30]


def test_a_function_may_be_made_the_same_task_twice(tasks: Tasks) -> None:
    tasks.task(retry=2)(add)
    result = tasks.task(retry=2)(add).send(1, 2)
    tasks.drain()
    assert result.get(timeout=0) == 3


def test_a_task_cannot_have_the_name_of_workflows(tasks: Tasks) -> None:
    with pytest.raises(shardq.InvalidSetting, match=r"'shardq\.workflow' is what shardq calls workflows"):
        tasks.task(name="shardq.workflow")(add)


MODULE = """
    from makers import scaled
    from the_app import tasks

    @tasks.task
    def version() -> int:
        return {number}

    @tasks.task(queue="limited", rate_limit="{number}/s")
    def limited() -> None: ...

    twice = scaled(tasks, "twice", 2)
"""
MAKERS = """
    def scaled(tasks, name, factor):
        @tasks.task(name=name)
        def scale(number: int) -> int:
            return factor * number
        return scale
"""


@pytest.fixture
def write(
    tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], None]]:
    def written(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    written("the_app", "tasks = None")
    importlib.import_module("the_app").tasks = tasks  # type: ignore[attr-defined]
    written("makers", MAKERS)
    yield written
    for name in ("the_app", "makers", "shop_of_tasks", "other_shop"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("forget", [False, True])
def test_a_module_that_is_loaded_again_replaces_its_tasks(
    tasks: Tasks, write: Callable[[str, str], None], forget: bool
) -> None:
    for number in (1, 2, 3):
        write("shop_of_tasks", MODULE.format(number=number))
        if number > 1 and not forget:
            importlib.reload(sys.modules["shop_of_tasks"])
        else:
            sys.modules.pop("shop_of_tasks", None)
            importlib.import_module("shop_of_tasks")
        result = tasks.tasks["version"].send()
        doubled = tasks.tasks["twice"].send(5)
        tasks.drain()
        assert (result.get(timeout=0), doubled.get(timeout=0)) == (number, 10)


def test_another_module_cannot_take_the_name_of_a_task(
    tasks: Tasks, write: Callable[[str, str], None]
) -> None:
    write("shop_of_tasks", MODULE.format(number=1))
    importlib.import_module("shop_of_tasks")
    write("other_shop", 'from makers import scaled\nfrom the_app import tasks\nscaled(tasks, "twice", 3)')
    with pytest.raises(shardq.InvalidSetting, match="there are two tasks 'twice'"):
        importlib.import_module("other_shop")


def entered(tasks: Tasks, *cells: str) -> dict[str, Any]:
    """What an interactive session knows after these cells."""
    names: dict[str, Any] = {"__name__": "__main__", "tasks": tasks}
    for cell in cells:
        exec(compile(textwrap.dedent(cell), "<cell>", "exec"), names)
    return names


def test_an_interactive_session_may_define_a_task_again(tasks: Tasks) -> None:
    cell = "@tasks.task\ndef version() -> int:\n    return {}"
    result = entered(tasks, cell.format(1), cell.format(2))["version"].send()
    tasks.drain()
    assert result.get(timeout=0) == 2


def test_an_interactive_session_cannot_make_two_tasks_of_one_factory(tasks: Tasks) -> None:
    with pytest.raises(shardq.InvalidSetting, match="there are two tasks 'scale'"):
        entered(tasks, MAKERS, "scaled(tasks, None, 2)", "scaled(tasks, None, 3)")


PLUGIN = "@tasks.task\ndef version(): return {number}"


def of_other_names(tasks: Tasks) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"tasks": tasks}, {"tasks": tasks}


def of_the_names_of_their_loader(tasks: Tasks) -> tuple[dict[str, Any], dict[str, Any]]:
    return globals() | {"tasks": tasks}, globals() | {"tasks": tasks}


def of_the_names_of_a_script(tasks: Tasks) -> tuple[dict[str, Any], dict[str, Any]]:
    script = {"__name__": "__main__", "__file__": "script.py", "__spec__": None, "tasks": tasks}
    return dict(script), dict(script)


@pytest.mark.parametrize("files", [("a.py", "b.py"), ("<string>", "<string>")])
@pytest.mark.parametrize("names", [of_other_names, of_the_names_of_their_loader, of_the_names_of_a_script])
def test_plugins_that_a_loader_executes_cannot_take_the_names_of_each_others_tasks(
    tasks: Tasks,
    names: Callable[[Tasks], tuple[dict[str, Any], dict[str, Any]]],
    files: tuple[str, str],
) -> None:
    first, second = (
        (compile(PLUGIN.format(number=number), file, "exec"), each)
        for number, (file, each) in enumerate(zip(files, names(tasks), strict=True))
    )
    exec(*first)
    with pytest.raises(shardq.InvalidSetting, match="there are two tasks 'version'"):
        exec(*second)


def test_a_script_that_is_run_again_replaces_its_tasks(
    tasks: Tasks, write: Callable[[str, str], None], tmp_path: Path
) -> None:
    for number in (1, 2):
        write("shop_of_tasks", MODULE.format(number=number))
        runpy.run_path(str(tmp_path / "shop_of_tasks.py"))
        result = tasks.tasks["version"].send()
        tasks.drain()
        assert result.get(timeout=0) == number
