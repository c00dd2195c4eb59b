"""Where a soak takes place: a store of its own, and what can be seen of its server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec

from ..bench.database import Database
from ..bench.group import CASSANDRA, MONGODB
from ..bench.software import software
from ..bench.usage import Usage

__all__ = ["STORES", "Site", "open_site"]

STORES: Mapping[str, Database | None] = MappingProxyType(
    {"sqlite": None, "cassandra": CASSANDRA.database, "mongodb": MONGODB.database}
)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """``tombstones`` gives the tombstones of a read now; None where there are none."""

    url: str
    software: str
    usage: Usage
    tombstones: Callable[[], float | None]


@contextmanager
def open_site(store: str) -> Iterator[Site]:
    """A new store; its server is started for it and stopped at the end. Raises PeerMissing."""
    database = STORES[store]
    if database is None:
        with tempfile.TemporaryDirectory(prefix="shardq-soak-") as folder:
            yield Site(
                url=f"sqlite:///{folder}/queue.db",
                software=software({"SQLite": None}),
                usage=Usage((), (Path(folder),)),
                tombstones=lambda: None,
            )
        return
    with database.running() as running, _tombstones(store) as tombstones:
        yield Site(
            url=running.url,
            software=software({database.title: running.url}),
            usage=running.usage or Usage(),
            tombstones=tombstones,
        )


@contextmanager
def _tombstones(store: str) -> Iterator[Callable[[], float | None]]:
    if store != "cassandra":
        yield lambda: None
        return
    from .tombstones import Tombstones  # noqa: PLC0415 -- needs a driver that the other stores do not

    reader = Tombstones()
    try:
        yield reader.of_a_read
    finally:
        reader.close()
