"""The whole demo: the flights, the run, the check, the pictures and the figures."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console

from shardq.base.texts import masked
from shardq.demo.check import check_run
from shardq.demo.download import get_flights
from shardq.demo.plan import Options, Plan
from shardq.demo.progress import live_view
from shardq.demo.records import read_harvest
from shardq.demo.report import print_report
from shardq.demo.run import run
from shardq.demo.summary import Spread, Summary, read_spread, summarise
from shardq.demo.timeline import Timeline, read_timeline
from shardq.demo.workplace import Workplace, count_leftovers

__all__ = ["run_demo"]


def run_demo(options: Options, *, notes: Console, report: Console) -> Summary:
    """Run the demo; progress goes to ``notes``, tables to ``report``.

    Raises DataUnavailable, ProcessFailed, or what the store raises. Nothing but the plots is left in the
    output folder, unless it is to be kept or something is off.
    """
    data, expected = get_flights(options, notes)
    with Workplace(options, data, len(expected)) as place:
        _announce(place.plan, notes)
        with live_view(notes, place.plan.messages) as view:
            done = run(place.plan, view)
        harvest = read_harvest(place.folder)
        timeline, spread = read_timeline(done, harvest), read_spread(place.plan, harvest)
        check = check_run(done, harvest, expected, count_leftovers(place.plan))
        summary = summarise(done, harvest, timeline, spread, check)
        summary = _drawn(summary, timeline, spread, options.output, notes)
        print_report(report, summary, spread)
        place.keep = options.keep or not summary.good
        if place.keep:
            notes.print(
                f"kept: queue {place.plan.queue} at {masked(place.plan.url)}",
                soft_wrap=True,
                markup=False,
            )
            notes.print(f"      records in {place.folder}", soft_wrap=True, markup=False)
        return summary


def _announce(plan: Plan, notes: Console) -> None:
    text = (
        f"queue {plan.queue}: {plan.shards} shards x {plan.time_shards} time shards of {plan.time_shard_seconds:g} s, "
        f"visibility timeout {plan.visibility_timeout:g} s\n"
        f"{plan.producers} producer processes send, {plan.workers} worker processes read {plan.batch} at a time, "
        f"write their results, then ack the batch"
    )
    notes.print(text, soft_wrap=True, highlight=False, markup=False)


def _drawn(summary: Summary, timeline: Timeline, spread: Spread, folder: Path, notes: Console) -> Summary:
    """The summary with its plots; without any where matplotlib is missing."""
    try:
        from shardq.demo.plots import draw_all  # noqa: PLC0415  matplotlib is optional
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        notes.print("no plots, because matplotlib is not installed: pip install 'shardq[demo]'", markup=False)
        return summary
    paths = draw_all(timeline, spread, summary, folder)
    return msgspec.structs.replace(summary, plots=[str(path) for path in paths])
