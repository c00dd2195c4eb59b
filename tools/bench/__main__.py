"""``tools/bench/run``: measure everything, write the figures, the page and the plots."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from .comparison import Comparison, Promise
from .field import FIELDS, Field
from .latency import run_latencies
from .load_latency import run_loads
from .measuring import measure_stores
from .page import page, targets_section
from .plots import draw_all
from .rounds import run_rounds
from .software import software as software_of
from .starting import open_all, start_servers

ROOT = Path(__file__).parents[2]
DOCS, SCRATCH = ROOT / "docs", ROOT / "var" / "bench"


@click.command()
@click.option("--store", type=click.Choice(tuple(FIELDS)), default="all", help="Whose field; all.")
@click.option("--quick", is_flag=True, help="Smaller, in a few minutes; written below var/.")
@click.option(
    "--only", multiple=True, metavar="PEER", help="Only these peers, by module; no measurements of stores."
)
@click.option(
    "--asked", is_flag=True, help="Only what is asked, with its peers; printed, written below var/."
)
@click.option("--docs-only", is_flag=True, help="Measure nothing: make page and plots from the kept figures.")
@click.option("--output", type=click.Path(path_type=Path), help="Where to write; docs/ unless quick.")
def run(
    store: str, quick: bool, only: tuple[str, ...], asked: bool, docs_only: bool, output: Path | None
) -> None:
    """Compare shardq with its peers, and measure how its costs grow."""
    field, folder = FIELDS[store], output or (SCRATCH if quick or only or asked else DOCS)
    kept = folder / field.name / "results.json"
    if not docs_only:
        kept.parent.mkdir(parents=True, exist_ok=True)
        taking_part = field.asked() if asked else _narrowed(field, only)
        kept.write_bytes(compare(taking_part, quick=quick).encode() + b"\n")
    elif not kept.exists():
        raise click.UsageError(f"{kept} does not exist: run without --docs-only first")
    comparison = Comparison.decode(kept.read_bytes())
    (folder / f"{field.name}.md").write_text(page(comparison, field.title, field.name))
    draw_all(comparison, kept.parent)
    if asked:
        click.echo(targets_section(comparison))


def _narrowed(field: Field, only: tuple[str, ...]) -> Field:
    try:
        return field.of(only) if only else field
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def compare(field: Field, *, quick: bool) -> Comparison:
    """Run it all."""
    with ExitStack() as stack:
        servers = start_servers(field.groups, stack)
        with tempfile.TemporaryDirectory(prefix="shardq-bench-") as folder, ExitStack() as peers:
            Path(folder).chmod(0o711)  # a server may run as another user, which has to reach its own folder
            entries, missing = open_all(servers, Path(folder), peers)
            if not entries:
                raise click.ClickException(f"nobody takes part: {'; '.join(missing)}")
            plan = field.rounds(quick=quick)
            results, failed = run_rounds(entries, plan, say=say)
            latencies, silent = run_latencies(entries, plan, say=say)
            loaded, stuck = run_loads(entries, plan, say=say)
        measured = measure_stores(field, servers, quick=quick, say=say)
        software = software_of({name: store.url if store else None for name, store in servers.stores.items()})
    return Comparison(
        report=measured.report,
        store=field.store,
        software=software,
        promises=tuple(Promise.of(entry.peer) for entry in entries),
        missing=(*missing, *failed, *silent, *stuck, *measured.missing),
        peers=(*results, *latencies, *loaded),
        left_out=measured.left_out,
    )


def say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    run()
