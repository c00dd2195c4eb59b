"""Threads that are interrupted again and again, at any moment, block no other thread of their client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardq
from tests.any_store import any_url

__all__ = ["any_url"]

PROGRAM = Path(__file__).with_name("interrupting.py")


@pytest.fixture
def queue(any_url: str) -> Iterator[str]:
    with shardq.connect(any_url) as client:
        name = f"i{os.urandom(4).hex()}"
        client.create_queue(name, shards=1, time_shards=1, max_deliveries=None, visibility_timeout=5)
        yield name
        client.delete_queue(name)


def run(*arguments: str | Path) -> None:
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=unmeasured,  # else each step takes a multiple of its time, most of it with what measures
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("group", ["", "g"], ids=["no group", "a group"])
@pytest.mark.parametrize("prefetch", ["0", "5"], ids=["read", "claimed ahead"])
def test_threads_go_on_after_exceptions_were_raised_in_them(
    any_url: str, queue: str, prefetch: str, group: str
) -> None:
    run(PROGRAM, any_url, queue, group, prefetch, "thread")


def test_threads_go_on_after_handlers_of_signals_have_raised_in_the_main_thread(
    any_url: str, queue: str
) -> None:
    run(PROGRAM, any_url, queue, "", "0", "signal")
