"""The examples of the documentation run, page by page, and those of the docstrings too."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

import shardq
from tests.docs.pages import PAGES, blocks_in, name
from tests.docs.test_tutorial import STORIES

SHARDQ = Path(sys.executable).with_name("shardq")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_in(page, "python")], ids=name)
def test_the_python_blocks_of_a_page_run_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in enumerate(blocks_in(page, "python"), start=1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
    for value in names.values():
        if isinstance(value, shardq.Client):
            value.close()


# The commands of stories need their files: test_tutorial.py runs them as a whole.
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks_in(page, "console") and page.name not in STORIES],
    ids=name,
)
def test_the_shell_commands_of_a_page_succeed(page: Path, tmp_path: Path) -> None:
    for block in blocks_in(page, "console"):
        for line in block.splitlines():
            if line.startswith("$ shardq "):
                command = [str(SHARDQ), *shlex.split(line)[2:]]
                done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for token in MarkdownIt().parse(page.read_text()):
        for child in token.children or []:
            target = str(child.attrs.get("href") or child.attrs.get("src") or "")
            if target and "://" not in target and not target.startswith("#"):
                assert (page.parent / target.split("#")[0]).exists(), target


def modules() -> list[str]:
    """Every module of the package."""
    return sorted(found.name for found in pkgutil.walk_packages(shardq.__path__, "shardq."))


@pytest.mark.xdist_group("test_examples")  # each would import all modules
@pytest.mark.parametrize("name", ["shardq", *modules()])
def test_the_examples_of_a_modules_docstrings_hold(
    name: str, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(name)
    clients: list[shardq.Client] = []
    make = shardq.Client.__init__

    def note(client: shardq.Client, *arguments: Any, **options: Any) -> None:
        clients.append(client)
        make(client, *arguments, **options)

    monkeypatch.setattr(shardq.Client, "__init__", note)
    for test in doctest.DocTestFinder(exclude_empty=True).find(
        module, globs={**vars(module), "shardq": shardq}
    ):
        test.globs["url"] = f"sqlite:///{tmp_path}/{test.name}.db"
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
        assert result.failed == 0
    for client in clients:
        client.close()


def test_the_public_names_are_listed_in_order() -> None:
    names = list(shardq.__all__)
    assert len(set(names)) == len(names)
    assert all(hasattr(shardq, name) for name in names)
    public = {
        name
        for name, value in vars(shardq).items()
        if not name.startswith("_") and not hasattr(value, "__path__")
    }
    modules_of_the_package = {name.split(".")[1] for name in modules()}
    assert public - modules_of_the_package == set(names) - modules_of_the_package
