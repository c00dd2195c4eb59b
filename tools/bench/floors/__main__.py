"""How fast a queue with leases could be at most on a store, beside shardq.

    python -m tools.bench.floors sqlite|mongodb|cassandra [--url URL] [--rounds N] [--quick] [--only KIND]

It starts a server of its own, or takes the one of the URL, whose processor time it knows when it runs on this machine.
SQLite's files are in a temporary folder, of the system's or beside the file of the URL; it has to be on a disk.
Each floor is measured in turn with shardq and the queues that it is compared with, where tools/bench/setup has
installed them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import click
import psutil

from shardq.storage.sqlite.url import path_in

from ..database import Running
from ..group import CASSANDRA, FILES, MONGODB, Group
from ..software import software
from ..stores.report import this_machine
from ..usage import Usage
from . import waiting
from .floor import FULL, QUICK, Measured, Size, measure
from .queues import floors
from .table import EXPLAINED, floors_table

GROUPS = {"sqlite": FILES, "mongodb": MONGODB, "cassandra": CASSANDRA}
ROUNDS = 5


@click.command()
@click.argument("store", type=click.Choice(tuple(GROUPS)))
@click.option("--url", help="A server that runs; SQLite: sqlite:///FOLDER/any.db for files in that folder.")
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, show_default=True)
@click.option("--quick", is_flag=True, help="Fewer messages.")
@click.option("--only", default="", metavar="KIND", help="Only those with this in their name, such as idle.")
def run(store: str, url: str | None, rounds: int, quick: bool, only: str) -> None:
    """Measure bare statements and shardq in turn, and print a table."""
    group = GROUPS[store]
    with running(group, url) as server:
        found = measure_store(store, server, QUICK if quick else FULL, rounds, _folder(group, url), only)
        versions = software({group.store: server.url if server else None})
    click.echo(
        f"{versions}, {this_machine()}, {rounds} round{'s' if rounds > 1 else ''}, messages of 512 B.\n{EXPLAINED}\n"
    )
    click.echo(floors_table(group.store, found), nl=False)


def measure_store(
    store: str, server: Running | None, size: Size, rounds: int, where: Path | None = None, only: str = ""
) -> list[Measured]:
    """The floors of the store whose kind contains ``only``, with files in a folder within that one."""
    statements = import_module(f"{__package__}.{store}")
    with (
        tempfile.TemporaryDirectory(prefix="shardq-floors-", dir=where) as folder,
        statements.works(size, Path(folder)) as bare,
        floors(GROUPS[store], server, Path(folder), size, bare) as found,
    ):
        if server is None or (server.usage and server.usage.processes):
            found.append(waiting.floor(store, server, size, Path(folder)))
        wanted = [each for each in found if only in each.kind]
        if not wanted:
            raise click.BadParameter(
                f"{only!r} is in none of: {', '.join(each.kind for each in found)}", param_hint="--only"
            )
        return measure(wanted, rounds, lambda text: click.echo(text, err=True))


@contextmanager
def running(group: Group, url: str | None) -> Iterator[Running | None]:
    """The server, with its processes."""
    with ExitStack() as stack:
        if group.database is None:
            yield None
            return
        if url:
            stack.enter_context(mock.patch.dict(os.environ, {group.database.variable: url}))
        server = stack.enter_context(group.database.running())
        usage = server.usage or Usage(serving(server.url), settle=group.database.settle)
        yield Running(server.url, usage)


def _folder(group: Group, url: str | None) -> Path | None:
    return Path(path_in(url)).parent if url and group.database is None else None


def serving(url: str) -> tuple[int, ...]:
    """The processes of this machine that listen where the URL leads to."""
    ports = {int(place.rpartition(":")[2]) for place in urlsplit(url).netloc.split(",") if ":" in place}
    open_ports = psutil.net_connections("tcp") if "127.0.0.1" in url or "localhost" in url else ()
    found = (
        each.pid for each in open_ports if each.status == psutil.CONN_LISTEN and each.laddr.port in ports
    )
    return tuple({pid for pid in found if pid})


if __name__ == "__main__":
    run()
