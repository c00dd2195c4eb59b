"""``tools/faults/run``: break things while clients are at work, and check that nothing was lost."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

import click

from .defects import DEFECTS
from .report import campaign_lines, round_lines, write_round
from .round import Plan, Round, run_round
from .target import Target
from .targets import TARGETS

ROOT = Path(__file__).parents[2]


@click.command()
@click.option("--store", type=click.Choice([*TARGETS, "all"]), default="sqlite", show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="All faults follow from it.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--first-round", type=click.IntRange(1), default=1, show_default=True, help="Leave out those before it."
)
@click.option(
    "--messages", type=click.IntRange(100), default=20_000, show_default=True, help="Of all rounds."
)
@click.option("--seconds", type=click.FloatRange(1), help="Of faults in a round; the store's own.")
@click.option(
    "--defect", type=click.Choice(sorted(DEFECTS)), default=None, help="Break the store on purpose."
)
@click.option(
    "--output", type=click.Path(path_type=Path), default=ROOT / "var" / "faults", show_default="var/faults"
)
def run(
    *,
    store: str,
    seed: int,
    rounds: int,
    first_round: int,
    messages: int,
    seconds: float | None,
    defect: str | None,
    output: Path,
) -> None:
    """Run rounds of faults on a store, and report what became of every message."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.default_int_handler)  # servers and clients are ended first
    kept = True
    if first_round > rounds:
        raise click.BadParameter(f"there are only {rounds} rounds", param_hint="--first-round")
    for name in TARGETS if store == "all" else [store]:
        plans = [
            Plan(seed, number, messages // rounds, seconds or 0.0, defect or "")
            for number in range(first_round, rounds + 1)
        ]
        done = _campaign(name, plans, output)
        kept = kept and all(each.kept for each in done)
    raise SystemExit(0 if kept else 1)


def _campaign(name: str, plans: list[Plan], output: Path) -> list[Round]:
    scratch = Path(tempfile.mkdtemp(prefix="shardq-faults-"))
    target = TARGETS[name](scratch)
    done: list[Round] = []
    try:
        target.start()
        for plan in plans:
            done += [_round(target, plan, output / f"{name}-{plan.seed}-{plan.number}")]
            (output / f"{name}-{plan.seed}.txt").write_text("\n".join(campaign_lines(done)) + "\n")
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    finally:
        target.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    click.echo("\n".join(campaign_lines(done)))
    return done


def _round(target: Target, plan: Plan, folder: Path) -> Round:
    shutil.rmtree(folder, ignore_errors=True)
    done = run_round(target, plan.lasting(target.fault_seconds), folder)
    write_round(done, folder)
    click.echo("\n".join(round_lines(done)))
    return done


if __name__ == "__main__":
    run()
