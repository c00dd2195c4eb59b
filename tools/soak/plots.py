"""The plots of docs/soak.md: everything over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import matplotlib as mpl
from matplotlib.figure import Figure

from ..bench.palette import ACCENTS, STYLE
from .plan import Plan
from .sample import Sample
from .series import Series, all_series

__all__ = ["PLOTS", "draw_all", "series_of"]

PLOTS: Mapping[str, str] = MappingProxyType(
    {
        "latency": "latency",
        "clients": "memory of producer, memory of consumer",
        "server": "memory of the server",
        "files": "files",
        "tombstones": "tombstones",
        "backlog": "backlog",
        "load": "load of the machine",
    }
)


def series_of(plot: str, samples: Sequence[Sample], plan: Plan) -> list[Series]:
    """What a plot shows: those series whose names begin as it says, of which there are points."""
    beginnings = tuple(PLOTS[plot].split(", "))
    return [
        series for series in all_series(samples, plan) if series.name.startswith(beginnings) and series.points
    ]


def draw_all(samples: Sequence[Sample], plan: Plan, folder: Path) -> None:
    """One PNG for each plot of which there are points."""
    with mpl.rc_context(STYLE):
        for name in PLOTS:
            if series := series_of(name, samples, plan):
                _draw(name, series).savefig(folder / f"{name}.png", metadata={"Software": None})


def _draw(name: str, series: Sequence[Series]) -> Figure:
    figure = Figure(figsize=(8, 2.8))
    axes = figure.subplots()
    for place, each in enumerate(series):
        minutes = [at / 60 for at, _ in each.points]
        values = [value for _, value in each.points]
        axes.plot(minutes, values, color=ACCENTS[place % len(ACCENTS)], label=each.name, linewidth=1.2)
    axes.set(title=name, xlabel="minutes", ylabel=series[0].unit or "count")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8.5)
    return figure
