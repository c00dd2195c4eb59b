"""Servers that are started again while others of theirs run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVERS = Path(__file__).parents[2] / "tools" / "servers"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(SERVERS)
    yield tmp_path
    from server_process import ServerProcess

    for name in ("first", "second"):
        ServerProcess(tmp_path / name).stop()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_does_not_start_again_leaves_the_others_running(folder: Path) -> None:
    from server_process import ServerProcess
    from server_tool import ServerTool

    def start(name: str) -> None:
        (folder / name).mkdir(exist_ok=True)
        sleep = [sys.executable, "-c", "import time; time.sleep(600)", str(folder / name)]
        ServerProcess(folder / name).start(sleep, lambda: True, patience=60)

    def start_both(_: Path, options: argparse.Namespace) -> str:
        start("first")
        start("second")
        if options.fails:
            raise RuntimeError("it did not answer in time")
        return "url"

    tool = ServerTool("sleepers", "", lambda _: None, start_both)
    start("first")
    with pytest.raises(RuntimeError):
        tool._start(folder, argparse.Namespace(fails=True))
    assert ServerProcess(folder / "first").pid() is not None
    assert ServerProcess(folder / "second").pid() is None
