"""docs/soak.md, out of the kept samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..bench.cells import table
from ..bench.stores.wording import figure
from .plots import PLOTS, series_of
from .record import Record
from .sample import Sample
from .verdict import Finding, Verdict, judge

__all__ = ["Soaked", "page"]

INTRODUCTION = """\
# Soak

Steady load for a long time: does anything grow? Made by `tools/soak/run` (`make soak`) from the samples in
`docs/soak/`; not edited by hand.

Producers and consumers are processes. Every message has a moment at which it is to be sent, whatever the queue does (an
open loop), and its latency counts from then; what falls due within 50 ms is sent together. Growth is the median slope
between all pairs of samples of the last two thirds of the time, times that time; medians are of that time too. The
bound of a memory or a latency is a share of its median, at least a few megabytes or milliseconds; that of the backlog
is a second of messages, that of the files a tenth of the bodies sent, at least 64 MB: logs and tombstones are kept for
a while. The load of the machine, the number of processes that want a processor, is not judged: what else the machine
did shows in it, and in the latency.
"""
SECTION = """\
## {title}

**{verdict}.** {load} On {machine}.

{findings}{troubles}"""


class Soaked(msgspec.Struct, frozen=True):
    """A soak with its samples."""

    record: Record
    samples: tuple[Sample, ...]


def page(soaks: Mapping[str, Soaked]) -> str:
    """The whole page, a section for each store."""
    return "\n".join([INTRODUCTION, *(_section(store, each) for store, each in soaks.items())])


def _section(store: str, soaked: Soaked) -> str:
    record, verdict = soaked.record, judge(soaked.samples, soaked.record)
    text = SECTION.format(
        title=record.software,
        verdict=_words(verdict),
        load=_load(record),
        machine=record.machine,
        findings=_findings(verdict.findings),
        troubles="".join(f"\n- {trouble}\n" for trouble in verdict.troubles),
    )
    shown = [name for name in PLOTS if series_of(name, soaked.samples, record.plan)]
    return text + "".join(f"\n![{record.software}: {name}](soak/{store}/{name}.png)\n" for name in shown)


def _words(verdict: Verdict) -> str:
    if verdict.kept:
        return "Nothing grew"
    grown = [finding.name for finding in verdict.findings if not finding.kept]
    return f"Grew: {', '.join(grown)}" if grown else "It did not go well"


def _load(record: Record) -> str:
    plan = record.plan
    return (
        f"{plan.rate:g} messages a second of {plan.body_bytes:,} B for {_duration(plan.seconds)}, "
        f"{plan.producers} producers, {plan.consumers} consumers; {record.sent:,} sent, {record.received:,} received."
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} s"


def _findings(findings: Sequence[Finding]) -> str:
    rows = [
        [
            f"{finding.name}{', ' if finding.unit else ''}{finding.unit}",
            _signed(finding.median).removeprefix("+"),
            _signed(finding.growth),
            "-" if finding.allowed is None else figure(finding.allowed),
            "-" if finding.allowed is None else "no" if finding.kept else "**yes**",
        ]
        for finding in findings
    ]
    return table(["what", "median", "growth", "bound", "grew"], rows)


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{figure(abs(value))}"
