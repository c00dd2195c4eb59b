"""``make power-loss``: record a load, cut the power at many moments, and check what is left."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from .sqlite_store import SqliteStore
from .trial import Cut, Recording, Store, cut, record

__all__ = ["run"]


@click.command()
@click.option("--store", type=click.Choice(["sqlite", "mongodb"]), default="sqlite", show_default=True)
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
    from .mongodb_store import MongodbStore  # noqa: PLC0415 -- only this store needs the driver

    return MongodbStore()


def _trials(scratch: Path, name: str, cuts: int, messages: int, seed: int, control_cuts: int) -> bool:
    store = _store(name)
    recording = record(store, scratch / "load", messages=messages, seed=seed)
    done = cut(store, recording, scratch, cuts=cuts, seed=seed)
    _report(f"{name} as shipped", recording, done)
    controls = [cut(store, recording, scratch, cuts=control_cuts, seed=seed, ignores_syncs=True)]
    _report("control: a disk that ignores syncs", recording, controls[0])
    if name == "sqlite":  # of the others shardq refuses what confirms before it syncs
        hasty = SqliteStore("?synchronous=normal")
        recording = record(hasty, scratch / "hasty", messages=messages, seed=seed)
        controls.append(cut(hasty, recording, scratch, cuts=control_cuts, seed=seed))
        _report("control: synchronous=normal", recording, controls[1])
    bad = [each for each in done if each.offences]
    for each in bad:
        click.echo(
            f"after change {each.at}, {each.mode} of sectors of {each.sector}: {each.offences}", err=True
        )
    sees = all(any(each.offences for each in control) for control in controls)
    if not sees:
        click.echo("a control found no loss: the tool is blind", err=True)
    return not bad and sees


def _report(title: str, recording: Recording, cuts: Sequence[Cut]) -> None:
    kinds = Counter(offence.partition(":")[0] for each in cuts for offence in each.offences)
    found = (
        ", ".join(f"{kind} after {count}" for kind, count in kinds.most_common()) or "every promise was kept"
    )
    middle = sorted(each.confirmed for each in cuts)[len(cuts) // 2] if cuts else 0
    click.echo(
        f"| {title} | {recording.changes:,} | {recording.syncs:,} | {len(cuts)} | {middle:,} | {found} |"
    )


if __name__ == "__main__":
    run()
