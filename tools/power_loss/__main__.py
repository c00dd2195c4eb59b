"""``make power-loss``: record a load, cut the power at many moments, and check what is left."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from .trial import Cut, Recording, cut, record

__all__ = ["run"]


@click.command()
@click.option("--cuts", type=click.IntRange(1), default=250, show_default=True)
@click.option("--messages", type=click.IntRange(4), default=2000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--control-cuts", type=click.IntRange(1), default=50, show_default=True, help="Of each control."
)
def run(*, cuts: int, messages: int, seed: int, control_cuts: int) -> None:
    """Cut the power under SQLite, and under two controls in which losses must be found."""
    with tempfile.TemporaryDirectory(prefix="shardq-power-loss-") as scratch:
        kept = _trials(Path(scratch), cuts, messages, seed, control_cuts)
    raise SystemExit(0 if kept else 1)


def _trials(scratch: Path, cuts: int, messages: int, seed: int, control_cuts: int) -> bool:
    click.echo(f"SQLite {sqlite3.sqlite_version}, {messages} messages, seed {seed}", err=True)
    recording = record(scratch / "full", messages=messages, seed=seed)
    done = cut(recording, scratch, cuts=cuts, seed=seed)
    _report("synchronous=full", recording, done)
    lying = cut(recording, scratch, cuts=control_cuts, seed=seed, ignores_syncs=True)
    _report("control: a disk that ignores syncs", recording, lying)
    normal = record(scratch / "normal", messages=messages, seed=seed, options="?synchronous=normal")
    late = cut(normal, scratch, cuts=control_cuts, seed=seed)
    _report("control: synchronous=normal", normal, late)
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
