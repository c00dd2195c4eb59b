"""A byte-order mark in front of a file is no part of its first line, where lines are no plain bytes."""

from __future__ import annotations

import codecs
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardq


def sent(url: str, data: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "shardq", "--url", url, "send", "q", *options]
    return subprocess.run(command, input=data, capture_output=True, check=False, timeout=60)


@pytest.fixture
def queue(url: str) -> Iterator[shardq.Queue]:
    with shardq.connect(url) as client:  # by the clock of the command line
        yield client.create_queue("q", shards=1, time_shards=1)


@pytest.mark.parametrize("by_file", [True, False])
def test_lines_of_json_may_have_one(queue: shardq.Queue, url: str, tmp_path: Path, by_file: bool) -> None:
    data = codecs.BOM_UTF8 + b'{"body": "a"}\r\n' + codecs.BOM_UTF8 + b'{"body": "b"}\n'
    (tmp_path / "lines.jsonl").write_bytes(data)
    source = ("--file", str(tmp_path / "lines.jsonl")) if by_file else ("-",)
    done = sent(url, data, "--jsonl", *source)
    assert (done.returncode, queue.counts().ready) == (0, 2), done.stderr


def test_values_of_the_json_codec_may_have_one(queue: shardq.Queue, url: str) -> None:
    done = sent(url, codecs.BOM_UTF8 + b'{"a": 1}\n', "--codec", "json", "-")
    assert done.returncode == 0, done.stderr
    assert queue.peek(1)[0].body == b'{"a":1}'


def test_plain_lines_are_stored_as_they_are(queue: shardq.Queue, url: str) -> None:
    sent(url, codecs.BOM_UTF8 + b"a\n", "-")
    assert queue.peek(1)[0].body == codecs.BOM_UTF8 + b"a"


def test_lines_in_utf_16_are_refused_with_the_remedy(queue: shardq.Queue, url: str) -> None:
    done = sent(url, '{"body": "a"}\n'.encode("utf-16"), "--jsonl", "-")
    assert done.returncode == 2
    assert b"save the file as UTF-8" in done.stderr
    assert queue.counts().ready == 0


def test_ids_that_are_read_may_have_one(queue: shardq.Queue, url: str) -> None:
    (identity,) = queue.producer().send_many([b"a"])
    command = [sys.executable, "-m", "shardq", "--url", url, "remove", "-"]
    data = codecs.BOM_UTF8 + identity.encode() + b"\n"
    done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=60)
    assert (done.returncode, queue.counts().ready) == (0, 0), done.stderr
