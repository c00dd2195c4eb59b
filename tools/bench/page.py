"""docs/benchmarks.md and those of the stores, out of the kept figures."""

from __future__ import annotations

from collections.abc import Iterator

from .cells import table, times, with_spread
from .comparison import Comparison
from .growth_section import growth_section
from .latency_section import latency_section, loaded_section
from .peer_section import peer_section
from .rounds import KINDS
from .singles import SINGLE_KINDS
from .stores.result import Result
from .stores.wording import FIXED_RATE, figure, load_in_words
from .targets import targets

INTRODUCTION = """\
# {title}

Made by `tools/bench/run{option}` from `docs/{name}/results.json`; not edited by hand. Measured on {machine}.
Every figure is the median of several rounds, the lowest and the highest in brackets.

{note}Measure your own machine and store with `shardq bench --url URL`.
"""
EACH_NOTE = (
    "More of each store is measured by `make bench STORE=sqlite`, `cassandra`, `mongodb`, `postgresql`. "
)
QUICK_NOTE = "This was a quick run: the figures are rough. "

TARGETS = """\
## What is asked, what is measured

A ratio is the median of the rounds' ratios, beside it the medians of both. What is not met says **no**.

{targets}"""

FASTER = """\
## Where another is faster

Queues whose median is better than that of every shardq on this page, the furthest ahead first.

{figures}"""

SECTIONS = (
    ("Throughput", "messages/s", ""),
    (
        "Latency",
        "ms",
        "From the call of `send` to the return of `receive`. At a fixed rate (an open loop) a message's time\n"
        "counts from the moment at which it was to be sent, so a stall shows in every message that it held up.\n\n"
        "![Latency by percentile]({name}/latency.png)\n\n",
    ),
)
SCALING = "## How costs grow"
CLAIMS = "![Time of a claim and number of waiting messages]({name}/claims.png)"
MEMORY = "![Memory of a consumer]({name}/memory.png)"


def page(comparison: Comparison, title: str, name: str) -> str:
    """The whole page; ``name`` is that of the folder beside it, with figures and plots."""
    return "\n".join(part.rstrip("\n") + "\n" for part in _parts(comparison, title, name))


def _parts(comparison: Comparison, title: str, name: str) -> Iterator[str]:
    report = comparison.report
    yield INTRODUCTION.format(
        title=title,
        option="" if comparison.store == "all" else f" --store {comparison.store}",
        name=name,
        machine=", ".join(part for part in (str(report.machine), comparison.software) if part),
        note=(QUICK_NOTE if report.quick else "") + (EACH_NOTE if comparison.store == "all" else ""),
    )
    yield peer_section(comparison, name)
    if waiting := latency_section(comparison, name):
        yield waiting
    if loaded := loaded_section(comparison, name):
        yield loaded
    if met := targets_section(comparison):
        yield met
    if faster := faster_section(comparison):
        yield faster
    for heading, unit, text in SECTIONS:
        results = [result for result in report.results if result.unit == unit and not _is_scaling(result)]
        if results:
            yield f"## {heading}\n\n{text.format(name=name)}{_results(results)}"
    if scaling := [result for result in report.results if _is_scaling(result)]:
        yield "\n\n".join([SCALING, *_scaling(scaling, name)])
    if grown := growth_section(comparison, name):
        yield grown


def _scaling(results: list[Result], folder: str) -> Iterator[str]:
    """Claims and their plot, then the rest and the plot of the memory, where there are figures for them."""
    if claims := [result for result in results if result.unit == "ms"]:
        yield _results(claims).rstrip()
        yield CLAIMS.format(name=folder)
    if rest := [result for result in results if result.unit != "ms"]:
        yield _results(rest).rstrip()
    if any(result.name.startswith("memory") for result in rest):
        yield MEMORY.format(name=folder)


def _is_scaling(result: Result) -> bool:
    return result.name.startswith(("claim", "memory", "idle"))


def targets_section(comparison: Comparison) -> str:
    """What is asked and what is measured; empty without figures for it."""
    rows = [
        [each.store, each.what, each.asked, each.measured, each.figures, "yes" if each.met else "**no**"]
        for each in targets(comparison)
    ]
    headings = ["store", "what", "asked", "measured", "figures", "met"]
    return TARGETS.format(targets=table(headings, rows, numbers_from=2)) if rows else ""


def faster_section(comparison: Comparison) -> str:
    """A line for each kind and each queue that is ahead in it; empty where none is."""
    rows = [row for kind in (*KINDS, *SINGLE_KINDS, FIXED_RATE) for row in _faster(comparison, kind)]
    headings = ["what", "queue", "why", "it", "shardq", "times as fast"]
    return FASTER.format(figures=table(headings, rows, numbers_from=3)) if rows else ""


def _faster(comparison: Comparison, kind: str) -> Iterator[list[str]]:
    whys = {promise.name: promise.wins for promise in comparison.promises}
    results = [result for result in comparison.peers if result.name == kind]
    ours = [result for result in results if result.subject in comparison.ours]
    if not ours:
        return
    best = min(ours, key=_slowness)
    for result in sorted(results, key=_slowness):
        ahead = _slowness(best) / _slowness(result)
        if ahead > 1:
            unit = " ms" if kind == FIXED_RATE else "/s"
            medians = [figure(each.median) + unit for each in (result, best)]
            yield [kind, result.subject, whys.get(result.subject, ""), *medians, times(ahead)]


def _slowness(result: Result) -> float:
    """What is better when it is less."""
    return result.median if result.name == FIXED_RATE else 1 / result.median


def _results(results: list[Result]) -> str:
    """A table for results of the same kind; percentiles and such get columns of their own, stores one if several."""
    names = list(dict.fromkeys(figure.name for result in results for figure in result.figures))
    several = len({result.subject for result in results}) > 1
    rows = [
        [
            *([result.subject] if several else []),
            result.name,
            load_in_words(result.name, result.load),
            with_spread(result),
            result.unit,
            *_more(result, names),
        ]
        for result in results
    ]
    headings = [*(["store"] if several else []), "measurement", "load", "median", "unit", *names]
    return table(headings, rows, numbers_from=3 if several else 2)


def _more(result: Result, names: list[str]) -> list[str]:
    values = {figure.name: f"{figure.value:.3g}" for figure in result.figures}
    return [values.get(name, "") for name in names]
