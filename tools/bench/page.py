"""docs/benchmarks.md, out of the kept figures."""

from __future__ import annotations

from shardq.bench.result import Result
from shardq.bench.wording import load_in_words

from .cells import table, times, with_spread
from .comparison import Comparison
from .rounds import KINDS
from .targets import targets

INTRODUCTION = """\
# {title}

Made by `tools/bench/run{option}` from `docs/{name}/results.json`; not edited by hand. Measured on {machine}.
Every figure is the median of several rounds, the lowest and the highest in brackets.

{note}Measure your own machine and store with `shardq bench --url URL`.
"""
QUICK_NOTE = "This was a quick run: the figures are rough. "

PEERS = """\
## Beside other queues

Messages per second of 512 B: one client process, the server (where there is one) beside it on the same machine,
everybody's files on the same disk, rounds interleaved.

{figures}
![Throughput of each queue]({name}/throughput.png)

What was waited for differs, so compare like with like:

{promises}
How many times as fast shardq is, the median over the rounds of the ratio within each round:

{ratios}"""

TARGETS = """\
## Targets

{targets}"""

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
SCALING = """\
## How costs grow

{claims}
![Time of a claim and number of waiting messages]({name}/claims.png)

{rest}
![Memory of a consumer]({name}/memory.png)
"""


def page(comparison: Comparison, title: str = "Benchmarks", name: str = "benchmarks") -> str:
    """The whole page; ``name`` is that of the folder beside it, with figures and plots."""
    option = "" if comparison.store == "sqlite" else f" --store {comparison.store}"
    report = comparison.report
    note = QUICK_NOTE if report.quick else ""
    parts = [
        INTRODUCTION.format(title=title, option=option, name=name, machine=_machine(comparison), note=note),
        _peers(comparison, name),
        _targets(comparison),
    ]
    for heading, unit, text in SECTIONS:
        results = [result for result in report.results if result.unit == unit and not _is_scaling(result)]
        if results:
            parts.append(f"## {heading}\n\n{text.format(name=name)}{_results(results)}")
    scaling = [result for result in report.results if _is_scaling(result)]
    claims = [result for result in scaling if result.unit == "ms"]
    rest = [result for result in scaling if result.unit != "ms"]
    parts.append(SCALING.format(name=name, claims=_results(claims), rest=_results(rest)))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _machine(comparison: Comparison) -> str:
    return ", ".join(part for part in (str(comparison.report.machine), comparison.software) if part)


def _is_scaling(result: Result) -> bool:
    return result.name.startswith(("claim", "memory", "idle"))


def _peers(comparison: Comparison, folder: str) -> str:
    names = [promise.name for promise in comparison.promises]
    rows = [[name, *(with_spread(comparison.peer(name, kind)) for kind in KINDS)] for name in names]
    promises = [[promise.name, promise.sends, promise.receives] for promise in comparison.promises]
    ratios = [[name, *(times(comparison.ratio(name, kind)) for kind in KINDS)] for name in names[1:]]
    text = PEERS.format(
        name=folder,
        figures=table(["queue", *KINDS], rows),
        promises=table(["queue", "a send is done", "receive and ack"], promises, numbers_from=3),
        ratios=table(["shardq /", *KINDS], ratios),
    )
    missing = "".join(f"\nLeft out: {reason}.\n" for reason in comparison.missing)
    return text + missing


def _targets(comparison: Comparison) -> str:
    rows = [
        [target.what, target.wanted, target.reached, "yes" if target.met else "**no**"]
        for target in targets(comparison)
    ]
    return TARGETS.format(targets=table(["what", "wanted", "reached", "met"], rows))


def _results(results: list[Result]) -> str:
    """A table for results of the same kind; percentiles and such get columns of their own."""
    names = list(dict.fromkeys(figure.name for result in results for figure in result.figures))
    rows = [
        [
            result.name,
            load_in_words(result.name, result.load),
            with_spread(result),
            result.unit,
            *_more(result, names),
        ]
        for result in results
    ]
    return table(["measurement", "load", "median", "unit", *names], rows, numbers_from=2)


def _more(result: Result, names: list[str]) -> list[str]:
    values = {figure.name: f"{figure.value:.3g}" for figure in result.figures}
    return [values.get(name, "") for name in names]
