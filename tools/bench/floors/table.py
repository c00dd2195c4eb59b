"""The floors of a store as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from ..asked import ASKED
from ..cells import table
from ..stores.wording import figure
from .floor import Measured, Taken

HEADINGS = ["what", "asked", "shardq", "bare statements", "shardq / bare statements"]
EXPLAINED = (
    "Medians of the rounds, with the lowest and the highest; after the rate the microseconds of processor for each "
    "message, of the client and, where there is one, of the server. The ratios are those of the rates and of the "
    "processor time, medians of those within a round. Other queues are in italics."
)


def floors_table(store: str, found: Sequence[Measured]) -> str:
    """A line for each floor and what it is compared with; the first one of a floor has what is common."""
    rows: list[list[str]] = []
    others = {each.peer for each in ASKED[store].times}
    for each in found:
        kind, is_rate = each.floor.kind, each.floor.is_rate
        common = (kind, asked(store, kind), _cell(each.own, is_rate))
        for name, bare in each.bare.items():
            title = f"*{name}*" if name in others else name
            rows.append([*common, f"{title}: {_cell(bare, is_rate)}", _ratios(each.own, bare, is_rate)])
            common = ("", "", "")
    return table(HEADINGS, rows, numbers_from=len(HEADINGS))


def asked(store: str, kind: str) -> str:
    """What asked.py wants of this kind."""
    limits = [f"<= {each.most:g}{each.unit}" for each in ASKED[store].limits if each.name == kind]
    for each in ASKED[store].times:
        if each.kind == kind:
            whose = ", ".join(filter(None, (each.peer, each.other)))
            limits.append(f"{'<=' if each.most else '>='} {each.wanted:g}x {whose}")
    return "; ".join(limits) or "nothing"


def _cell(rounds: Sequence[Taken], is_rate: bool) -> str:
    unit = "/s" if is_rate else " % of a core"
    processor = [_median(rounds, lambda each: each.client)]
    if rounds[0].server is not None:
        processor.append(_median(rounds, lambda each: each.server or 0))
    shown = " + ".join(map(figure, processor)) + (" µs" if is_rate else "")
    return f"{_spread([each.value for each in rounds], unit)}, {shown}"


def _ratios(own: Sequence[Taken], bare: Sequence[Taken], is_rate: bool) -> str:
    pairs = list(zip(own, bare, strict=True))
    ratio = _spread([mine.value / other.value for mine, other in pairs], "x")
    if not is_rate:
        return ratio
    used = median(_used(mine) / _used(other) for mine, other in pairs)
    return f"{ratio}; processor {figure(used)}x"


def _spread(values: Sequence[float], unit: str) -> str:
    between = f" ({figure(min(values))} to {figure(max(values))})" if len(values) > 1 else ""
    return f"{figure(median(values))}{unit}{between}"


def _used(taken: Taken) -> float:
    return taken.client + (taken.server or 0)


def _median(rounds: Sequence[Taken], value: Callable[[Taken], float]) -> float:
    return median(value(each) for each in rounds)
