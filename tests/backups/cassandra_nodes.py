"""The commands of the page of backups on each node of a local Cassandra."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import shardq
from tests.backups.kept import check_kept, check_report, keep
from tests.backups.under_load import check_restored, commands, loaded, program, run_commands, saving
from tests.local_server import TOOLS, local_server

__all__ = ["restored_cluster"]


class _Nodes:
    """The nodes of a cluster, each with a `nodetool` and a folder for its backup."""

    def __init__(self, folder: Path, place: Path, number: int) -> None:
        self._folder, self._place = folder, place
        self._numbers = range(1, number + 1)
        for node in self._numbers:
            (self._tools(node)).mkdir(parents=True, exist_ok=True)
            program(self._tools(node), "nodetool", sys.executable, TOOLS / "nodetool.py", folder, str(node))

    def _tools(self, node: int) -> Path:
        return self._place / f"bin{node}"

    def run(self, *words: str) -> None:
        """Type the commands with these words for each node."""
        for node in self._numbers:
            data = self._folder / f"127.0.0.{node}" / "data"
            variables = {"DATA": data, "BACKUP": self._place / f"backup{node}"}
            run_commands(commands(*words), variables, programs=[self._tools(node)])

    def run_on_one(self, *words: str) -> None:
        """Type commands for the first node."""
        run_commands(commands(*words), {}, programs=[self._tools(1)])


@contextmanager
def _cluster(options: tuple[str, ...], query: str, place: Path, number: int) -> Iterator[tuple[str, _Nodes]]:
    with local_server("cassandra", *options) as (url, folder):
        yield f"{url}{query}", _Nodes(folder, place, number)


def restored_cluster(
    tmp_path: Path, number: int, *options: str, query: str = "", rate: float = 100.0
) -> None:
    """Save a cluster by snapshots under load, restore it into a fresh one, and check what that has."""
    options = ("--jmx", "--nodes", str(number), *options)
    with _cluster(options, query, tmp_path, number) as (url, nodes), shardq.connect(url) as client:
        ids = keep(client)
        with loaded(client, url, tmp_path, rate=rate) as stage, saving(stage):
            nodes.run("nodetool snapshot", "shardq.dedupe")
            nodes.run("nodetool snapshot", "shardq.entry")
        nodes.run("clearsnapshot")
    with _cluster(options, query, tmp_path, number) as (url, nodes):
        run_commands(commands("schema apply"), {"SHARDQ_URL": url})
        nodes.run("nodetool import")
        if number > 1:
            nodes.run_on_one("nodetool repair")
        check_report(url)
        with shardq.connect(url) as client:
            check_restored(client, stage)
            check_kept(client, ids)
