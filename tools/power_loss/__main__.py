"""``make power-loss``: record a load, cut the power at many moments, and check what is left."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

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
        kept = _trials(Path(scratch), _trials_of(store), cuts, messages, seed, control_cuts)
    raise SystemExit(0 if kept else 1)


class _Trials(msgspec.Struct, frozen=True):
    """A store with its own settings, and one that is set to confirm before it syncs."""

    store: Store
    settings: str
    hasty: Store
    hasty_settings: str


def _trials_of(store: str) -> _Trials:
    if store == "sqlite":
        hasty = SqliteStore("?synchronous=normal")
        return _Trials(SqliteStore(), f"SQLite {sqlite3.sqlite_version}", hasty, "synchronous=normal")
    from .mongodb_store import MongodbStore  # noqa: PLC0415 -- only this store needs the driver

    return _Trials(MongodbStore(), "MongoDB", MongodbStore("&w=1&journal=false"), "w=1, no journal")


def _trials(scratch: Path, trials: _Trials, cuts: int, messages: int, seed: int, control_cuts: int) -> bool:
    recording = record(trials.store, scratch / "load", messages=messages, seed=seed)
    done = cut(trials.store, recording, scratch, cuts=cuts, seed=seed)
    _report(trials.settings, recording, done)
    lying = cut(trials.store, recording, scratch, cuts=control_cuts, seed=seed, ignores_syncs=True)
    _report("control: a disk that ignores syncs", recording, lying)
    hasty = record(trials.hasty, scratch / "hasty", messages=messages, seed=seed)
    late = cut(trials.hasty, hasty, scratch, cuts=control_cuts, seed=seed)
    _report(f"control: {trials.hasty_settings}", hasty, late)
    bad = [each for each in done if each.offences]
    for each in bad:
        click.echo(
            f"after change {each.at}, {each.mode} of sectors of {each.sector}: {each.offences}", err=True
        )
    controls = any(each.offences for each in lying) and any(each.offences for each in late)
    if not controls:
        click.echo("the controls found no loss: the tool is blind", err=True)
    return not bad and controls


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
