"""What the trials of Spark ask the kernel about processes, which may end at any moment."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import shardq
from tests.processes import running

TOOLS = Path(__file__).parents[2] / "tools" / "spark"


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("process_tree")


def test_a_process_that_has_ended_has_nothing(tree) -> None:
    with running([sys.executable, "-c", ""]) as ended:
        ended.wait()
    asked = (
        tree.children_of,
        tree.command_of,
        tree.descendants_of,
        tree.peak_of,
        tree.processor_of,
        tree.resident,
    )
    assert [ask(ended.pid) for ask in asked] == [[], "", [], 0, 0.0, 0]


def test_a_process_that_runs_is_seen_with_what_it_uses(tree) -> None:
    code = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\ninput()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running([sys.executable, "-c", code], **pipes) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        assert busy.pid in tree.descendants_of(os.getpid())
        assert tree.processor_of(busy.pid) > 0
        assert min(tree.resident(busy.pid), tree.peak_of(busy.pid)) > 0
        assert "process_time" in tree.command_of(busy.pid)
        busy.communicate("\n")


@pytest.mark.parametrize("place", ["/{}/a queue.db", "queue.db"])
def test_the_connections_of_a_process_to_a_file_are_counted(monkeypatch, tmp_path, place) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.chdir(tmp_path)
    connections = importlib.import_module("connections")
    url = f"sqlite:///{place.format(str(tmp_path)[1:])}"
    assert connections.count_of_process(os.getpid(), url) == 0
    with shardq.connect(url) as client:
        client.create_queue("q").producer().send(b"x")
        assert connections.count_of_process(os.getpid(), url) > 0
    assert connections.count_of_process(os.getpid(), url) == 0
