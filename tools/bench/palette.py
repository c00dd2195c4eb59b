"""How plots look."""

from __future__ import annotations

from typing import Any

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

OURS, OTHERS, ACCENTS = "#c2410c", "#94a3b8", ("#c2410c", "#0369a1", "#4d7c0f", "#7e22ce", "#334155")
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "savefig.dpi": 130,
    "svg.hashsalt": "shardq",
}


def _short(count: float) -> str:
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:g}{letter}"
    return f"{count:g}"


COUNT = FuncFormatter(lambda value, _: _short(value))
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def log_ticks(axis: Axis, labels: FuncFormatter = PLAIN, *, at: tuple[int, ...] = (1, 2, 5)) -> None:
    """Label an axis with a log scale at these multiples of the powers of ten."""
    axis.set_major_locator(LogLocator(subs=at))
    axis.set_major_formatter(labels)
    axis.set_minor_formatter(NullFormatter())
