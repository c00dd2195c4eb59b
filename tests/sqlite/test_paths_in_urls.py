"""The file of a URL is the one that it names, whatever characters its path has."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest

import shardq
from shardq.cli.main import main

NAMES = [
    "shop#2.db",
    "#",
    "a b.db",
    " a.db ",
    "100%.db",
    "a+b&c;d=e.db",
    "a@b:c.db",
    "[x]{y}.db",
    "a%b#c d.db",
]
NAMES += ["größe-日本-🐇.db"]
QUOTED = [
    *NAMES,
    "what?.db",
    "?",
    "a?synchronous=full",
    "a%20b.db",
    "%41.db",
    "tab\there.db",
    "line\nbreak.db",
    "\udcff.db",
]


def files(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not name.endswith(("-wal", "-shm")))  # noqa: PTH208


def used(url: str) -> None:
    with shardq.connect(url) as client:
        client.create_queue("q").producer().send(b"x")
    with shardq.connect(url) as client:
        assert client.queue("q").counts().ready == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", ["", "?synchronous=normal"])
def test_characters_of_a_path_stand_for_themselves(tmp_path: Path, name: str, options: str) -> None:
    used(f"sqlite:///{tmp_path}/{name}{options}")
    assert files(tmp_path) == [name]


@pytest.mark.parametrize("name", QUOTED)
def test_a_quoted_path_names_its_file(tmp_path: Path, name: str) -> None:
    used(f"sqlite:///{tmp_path}/{quote(os.fsencode(name))}")
    assert files(tmp_path) == [name]


def test_a_folder_may_have_such_a_name_too(tmp_path: Path) -> None:
    folder = tmp_path / "a #1 ü"
    folder.mkdir()
    used(f"sqlite:///{folder}/queue.db")
    assert files(folder) == ["queue.db"]


@pytest.mark.parametrize(
    ("end", "remedy"),
    [
        ("what?", "write %3F for a '\\?' of the path"),
        ("what?.db", "write %3F for a '\\?' of the path"),
        ("a?b?synchronous=full", "write %3F for a '\\?' of the path"),
        ("a?synchronous=full#b", "full#b"),
        ("a\n", "has the character '\\\\n'.* write %0A"),
        ("a\tb", "write %09"),
        ("a%00b", "names no file"),
    ],
)
def test_what_could_name_another_file_is_refused(tmp_path: Path, end: str, remedy: str) -> None:
    with pytest.raises(shardq.InvalidSetting, match=remedy):
        shardq.connect(f"sqlite:///{tmp_path}/{end}").create_queue("q")
    assert files(tmp_path) == []


def test_the_command_line_uses_the_same_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop#2.db"
    with pytest.raises(SystemExit) as ended:
        main(["--url", url, "create", "orders"])
    assert ended.value.code in (0, None)
    with shardq.connect(url) as client:
        assert client.queues() == ("orders", "orders.dead")


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://host/shop#2",
        "mongodb://host/shop?replicaSet=rs#0",
        "cassandra://host/shop#2",
        "cassandra://host/shop?local_dc=dc1#2",
        "sqlite:///q.db?signals=redis%3A%2F%2Fhost%2F0%231",
    ],
)
def test_a_part_of_another_url_is_not_left_out(url: str) -> None:
    with pytest.raises(shardq.InvalidSetting):
        shardq.connect(url)
