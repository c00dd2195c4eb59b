"""``make power-loss``: record a load, cut the power at many moments, and check what is left."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ..bench.cells import row
from .sqlite_store import SqliteStore
from .trial import Cut, Lies, Recording, Store, cut, record

__all__ = ["run"]


STORES = ("sqlite", "mongodb", "postgresql", "cassandra-batch", "cassandra-group", "cassandra-periodic")


@click.command()
@click.option("--store", type=click.Choice(STORES), default="sqlite", show_default=True)
@click.option("--cuts", type=click.IntRange(1), default=250, show_default=True)
@click.option("--messages", type=click.IntRange(4), default=2000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--control-cuts", type=click.IntRange(1), default=50, show_default=True, help="Of each control."
)
def run(*, store: str, cuts: int, messages: int, seed: int, control_cuts: int) -> None:
    """Cut the power under a store, and under controls in which losses must be found."""
    with tempfile.TemporaryDirectory(prefix="shardq-power-loss-") as scratch:
        kept = _trials(Path(scratch), store, cuts, messages, seed, control_cuts)
    raise SystemExit(0 if kept else 1)


def _store(name: str) -> Store:
    if name == "sqlite":
        return SqliteStore()
    if name == "mongodb":
        from .mongodb_store import MongodbStore  # noqa: PLC0415 -- only this store needs the driver

        return MongodbStore()
    if name == "postgresql":
        from .postgresql_store import PostgresqlStore  # noqa: PLC0415 -- likewise

        return PostgresqlStore()
    from .cassandra_store import CassandraStore  # noqa: PLC0415 -- likewise

    return CassandraStore(name.partition("-")[2])


def _hasty(name: str) -> tuple[str, Store] | None:
    """Return a store that confirms before it syncs; of the others shardq refuses that."""
    if name == "sqlite":
        return "synchronous=normal", SqliteStore("?synchronous=normal")
    if name == "postgresql":
        from .postgresql_store import PostgresqlStore  # noqa: PLC0415 -- only this store needs the driver

        return "synchronous_commit=off", PostgresqlStore({"synchronous_commit": "off"})
    return None


def _trials(scratch: Path, name: str, cuts: int, messages: int, seed: int, control_cuts: int) -> bool:
    store = _store(name)
    recording = record(store, scratch / "load", messages=messages, seed=seed)
    done = cut(store, recording, scratch, cuts=cuts, seed=seed)
    _report(f"{name} as shipped", recording, done)
    controls = []
    for title, lies in _lies(store):
        controls.append(cut(store, recording, scratch, cuts=control_cuts, seed=seed, lies=lies))
        _report(f"control: {title}", recording, controls[-1])
    if (hasty := _hasty(name)) is not None:
        title, store = hasty
        recording = record(store, scratch / "hasty", messages=messages, seed=seed)
        controls.append(cut(store, recording, scratch, cuts=control_cuts, seed=seed))
        _report(f"control: {title}", recording, controls[-1])
    bad = [each for each in done if each.offences]
    for each in bad:
        click.echo(
            f"after change {each.at}, {each.mode} of sectors of {each.sector}: {each.offences}", err=True
        )
    sees = all(any(each.offences for each in control) for control in controls)
    if not sees:
        click.echo("a control found no loss: the tool is blind", err=True)
    return not bad and sees


def _lies(store: Store) -> Iterator[tuple[str, Lies]]:
    yield "a disk that ignores syncs", Lies(ignores_syncs=True)
    yield "a disk that is late", Lies(late=0.5)
    if store.names_last:
        yield "a disk that forgets names", Lies(forgets_names=True)


def _report(title: str, recording: Recording, cuts: Sequence[Cut]) -> None:
    kinds = Counter(kind for each in cuts for kind in {what.partition(":")[0] for what in each.offences})
    found = (
        ", ".join(f"{kind} after {count}" for kind, count in kinds.most_common()) or "every promise was kept"
    )
    undone = [each.undone_for / 1e6 for each in cuts if each.undone]
    if undone:
        found += f"; after {len(undone)} what was told in the last {max(undone):.1f} s at most was undone"
    middle = sorted(each.confirmed for each in cuts)[len(cuts) // 2] if cuts else 0
    click.echo(
        row([title, f"{recording.changes:,}", f"{recording.syncs:,}", f"{len(cuts)}", f"{middle:,}", found])
    )


if __name__ == "__main__":
    run()
