"""``shardq plan``."""

from __future__ import annotations

import click
import msgspec

from shardq.cli.command import ExampleCommand, json_option
from shardq.cli.printing import note, print_columns, print_json, print_line
from shardq.cli.times import duration
from shardq.planning import Plan, Wanted
from shardq.planning import plan as lay_out

__all__ = ["plan"]


@click.command(cls=ExampleCommand, example="shardq plan --rate 1000000 --size 512 --latency 1s")
@click.option("--rate", type=float, required=True, help="Messages per second.")
@click.option("--size", type=int, required=True, help="Bytes of each message.")
@click.option("--latency", type=duration, default="1s", show_default=True, help="Time from send to receive.")
@click.option(
    "--store",
    default="cassandra",
    show_default=True,
    help="The kind of store: cassandra, mongodb, postgresql or sqlite.",
)
@click.option("--consumers", type=int, help="Consumer processes. Default: as many as needed.")
@click.option("--copies", type=int, default=3, show_default=True, help="Copies of each row, in a cluster.")
@click.option("--cores", type=int, default=8, show_default=True, help="Processor cores of each node.")
@json_option
def plan(as_json: bool, **numbers: object) -> None:
    """Propose a layout for a load, with its reasons.

    The proposal follows from unit costs that were measured on one machine. The last two lines say how, and for which
    use they hold. Measure yours with `shardq bench`. Exit code 1 means that the load is too high.
    """
    found = lay_out(Wanted(**numbers))  # type: ignore[arg-type]
    if as_json:
        more = {"conditions": found.conditions, "limit": found.limit, "feasible": found.feasible}
        print_json({**msgspec.structs.asdict(found), **more})
    else:
        _print(found)
    if not found.feasible:
        note(f"{found.limit.resource}: {found.limit.share:.0%} would be used. {_remedy(found)}")
        raise SystemExit(1)


def _print(found: Plan) -> None:
    print_columns([(each.name.replace("_", " "), _number(each.value), each.reason) for each in found.choices])
    print_line("")
    print_columns([(each.resource, f"{each.share:.1%} used", each.reason) for each in found.uses])
    print_line("")
    print_columns([(f"the limit: {found.limit.resource}",)])
    print_columns([(f"unit costs: {found.source}",)])
    print_columns([(f"conditions: {found.conditions}",)])


def _number(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _remedy(found: Plan) -> str:
    if found.limit.resource == "consumers' processors":
        return "Give more --consumers."
    return "Allow more --latency, so that more goes together, or take a store on more computers."
