"""``tools/soak/run``: steady load on a store, looked at all the time, and docs/soak.md out of what was seen."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from ..bench.peer import PeerMissing
from .page import Soaked, page
from .plan import Plan
from .plots import draw_all
from .record import Record
from .sample import read
from .site import STORES
from .soak import SAMPLES, soak
from .verdict import judge

ROOT = Path(__file__).parents[2]
DOCS, SCRATCH = ROOT / "docs", ROOT / "var" / "soak"
RECORD = "record.json"
FULL_MINUTES = 60


@click.command()
@click.option("--store", type=click.Choice(tuple(STORES)), default="cassandra", show_default=True)
@click.option("--minutes", type=click.FloatRange(0.05, 10_000), default=FULL_MINUTES, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(1),
    default=1_000,
    show_default=True,
    help="Messages a second, of all producers.",
)
@click.option("--body-bytes", type=click.IntRange(8, 1_000_000), default=512, show_default=True)
@click.option("--producers", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--consumers", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--sample-seconds", type=click.FloatRange(0.2), default=10, show_default=True)
@click.option(
    "--docs-only", is_flag=True, help="Run nothing: make the page and its plots from the kept samples."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Where to write; docs/, or var/soak/ when it is a short one.",
)
def run(
    *,
    store: str,
    minutes: float,
    rate: float,
    body_bytes: int,
    producers: int,
    consumers: int,
    sample_seconds: float,
    docs_only: bool,
    output: Path | None,
) -> None:
    """Send and receive at a steady rate for long, and tell whether anything grows. The exit code is 1 when it does."""
    folder = output or (DOCS if docs_only or minutes >= FULL_MINUTES else SCRATCH)
    if docs_only:
        raise SystemExit(0 if _write_page(folder) else 1)
    plan = Plan(
        store=store,
        seconds=minutes * 60,
        rate=rate,
        body_bytes=body_bytes,
        producers=producers,
        consumers=consumers,
        sample_seconds=sample_seconds,
    )
    _run(plan, folder / "soak" / store)
    raise SystemExit(0 if _write_page(folder) else 1)


def _run(plan: Plan, folder: Path) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.default_int_handler)  # processes and server are ended first
    folder.mkdir(parents=True, exist_ok=True)
    for old in (folder / SAMPLES, folder / RECORD):
        old.unlink(missing_ok=True)
    try:
        record = soak(plan, folder, lambda text: click.echo(text, err=True))
    except PeerMissing as reason:
        raise click.ClickException(str(reason)) from reason
    (folder / RECORD).write_bytes(record.encode())


def _write_page(folder: Path) -> bool:
    """Make page and plots of every store that was soaked; True when nothing grew."""
    found = sorted((folder / "soak").glob(f"*/{RECORD}"))
    if not found:
        raise click.UsageError(f"{folder / 'soak'} holds no soak: run without --docs-only first")
    soaks = {
        file.parent.name: Soaked(Record.decode(file.read_bytes()), tuple(read(file.parent / SAMPLES)))
        for file in found
    }
    for store, each in soaks.items():
        draw_all(each.samples, each.record.plan, folder / "soak" / store)
    (folder / "soak.md").write_text(page(soaks))
    click.echo(page(soaks))
    return all(judge(each.samples, each.record).kept for each in soaks.values())


if __name__ == "__main__":
    run()
