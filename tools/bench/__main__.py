"""``tools/bench/run``: measure everything, write the figures, the page and the plots."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from sqlite3 import sqlite_version

import click

from shardq.bench.command import measure

from .comparison import Comparison, Promise
from .field import find_peers
from .page import page
from .plots import draw_all
from .rounds import open_all, run_rounds

ROOT = Path(__file__).parents[2]
DOCS, SCRATCH = ROOT / "docs", ROOT / "var" / "bench"
ROUNDS, MESSAGES, SINGLES = 5, 50_000, 1_000
QUICK_ROUNDS, QUICK_MESSAGES, QUICK_SINGLES = 3, 10_000, 300


@click.command()
@click.option("--quick", is_flag=True, help="Smaller, in less than three minutes; written below var/.")
@click.option("--docs-only", is_flag=True, help="Measure nothing: make page and plots from the kept figures.")
@click.option("--output", type=click.Path(path_type=Path), help="Where to write; docs/ unless quick.")
def run(quick: bool, docs_only: bool, output: Path | None) -> None:
    """Compare shardq with its peers, and measure how its costs grow."""
    folder = output or (SCRATCH if quick else DOCS)
    kept = folder / "benchmarks" / "results.json"
    if not docs_only:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(compare(quick=quick).encode() + b"\n")
    elif not kept.exists():
        raise click.UsageError(f"{kept} does not exist: run without --docs-only first")
    comparison = Comparison.decode(kept.read_bytes())
    (folder / "benchmarks.md").write_text(page(comparison))
    draw_all(comparison, kept.parent)


def compare(*, quick: bool) -> Comparison:
    """Run it all."""
    with tempfile.TemporaryDirectory(prefix="shardq-bench-") as folder, ExitStack() as stack:
        peers, missing = open_all(list(find_peers()), Path(folder), stack)
        sizes = (QUICK_ROUNDS, QUICK_MESSAGES, QUICK_SINGLES) if quick else (ROUNDS, MESSAGES, SINGLES)
        results = run_rounds(peers, *sizes, say=say)
    report = measure(None, (), None, quick=quick)
    promises = tuple(map(Promise.of, peers))
    return Comparison(
        report=report, sqlite=sqlite_version, promises=promises, missing=tuple(missing), peers=tuple(results)
    )


def say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    run()
