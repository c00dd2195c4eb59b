"""``tools/bench/run``: measure everything, write the figures, the page and the plots."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec

from shardq.bench.command import measure

from .comparison import Comparison, Promise
from .field import FIELDS, Field
from .page import page
from .plots import draw_all
from .rounds import Rounds, open_all, run_rounds

ROOT = Path(__file__).parents[2]
DOCS, SCRATCH = ROOT / "docs", ROOT / "var" / "bench"
QUICK = Rounds(rounds=3, messages=10_000, singles=300)
FULL = Rounds(rounds=5, messages=50_000, singles=1_000)


@click.command()
@click.option("--store", type=click.Choice(tuple(FIELDS)), default="sqlite", help="Whose field; sqlite.")
@click.option("--quick", is_flag=True, help="Smaller, in a few minutes; written below var/.")
@click.option("--docs-only", is_flag=True, help="Measure nothing: make page and plots from the kept figures.")
@click.option("--output", type=click.Path(path_type=Path), help="Where to write; docs/ unless quick.")
def run(store: str, quick: bool, docs_only: bool, output: Path | None) -> None:
    """Compare shardq with its peers, and measure how its costs grow."""
    field, folder = FIELDS[store], output or (SCRATCH if quick else DOCS)
    name = "benchmarks" if store == "sqlite" else f"benchmarks-{store}"
    kept = folder / name / "results.json"
    if not docs_only:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(compare(field, quick=quick).encode() + b"\n")
    elif not kept.exists():
        raise click.UsageError(f"{kept} does not exist: run without --docs-only first")
    comparison = Comparison.decode(kept.read_bytes())
    (folder / f"{name}.md").write_text(page(comparison, field.title, name))
    draw_all(comparison, kept.parent)


def compare(field: Field, *, quick: bool) -> Comparison:
    """Run it all."""
    plan = QUICK if quick else FULL
    plan = msgspec.structs.replace(plan, batch=field.batch, single_batch=field.single_batch)
    with field.server() as url:
        with tempfile.TemporaryDirectory(prefix="shardq-bench-") as folder, ExitStack() as stack:
            peers, missing = open_all(list(field.find_peers()), Path(folder), stack)
            results = run_rounds(peers, plan, say=say)
        report = measure(url, (), None, quick=quick)
        software = field.software()
    return Comparison(
        report=report,
        store=field.store,
        software=software,
        promises=tuple(map(Promise.of, peers)),
        missing=tuple(missing),
        peers=tuple(results),
    )


def say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    run()
