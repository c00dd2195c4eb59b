"""The tutorial and the pages of tasks are stories: what their commands print is what they show."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks

STORIES = ("tutorial.md", "tasks.md", "coming-from.md")
TITLE = re.compile(r'python title="(?P<file>[\w.]+)"')
BIN = Path(sys.executable).parent
SAME = doctest.OutputChecker()


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with what it is said to print."""
    parts = re.split(r"^\$ (.+)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


class Reader:
    """Someone who does what the page says, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {name: value for name, value in os.environ.items() if name != "SHARDQ_URL"}
        self._environment["PATH"] = f"{BIN}{os.pathsep}{self._environment.get('PATH', '')}"
        self._environment["PYTHONDONTWRITEBYTECODE"] = "1"  # the handler is changed within a second

    def save(self, file: str, text: str) -> None:
        compile(text, file, "exec")  # also what is not run: programs of other libraries
        (self._folder / file).write_text(text)

    def type(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] == "export":
            self._environment |= dict([words[1].split("=", 1)])
            return ""
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=200,  # below that of a test: what it runs must end too
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("page", [DOCS / name for name in STORIES], ids=lambda page: page.name)
def test_what_the_page_shows_is_what_its_reader_sees(page: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for info, text in blocks(page):
        if file := TITLE.fullmatch(info):
            reader.save(file["file"], text)
        elif info == "console":
            for command, shown in commands(text):
                seen = reader.type(command)
                assert SAME.check_output(shown, seen, doctest.ELLIPSIS), f"$ {command}\n{seen}"
        else:
            assert info == "", f"a block of {info!r} is neither saved nor typed"
