"""How all pictures look: size, type, and colours that colour-blind readers can tell apart (Okabe and Ito, 2008)."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "INK",
    "ORANGE",
    "PURPLE",
    "VERMILION",
    "caption",
    "legend",
    "new_figure",
    "save",
    "tidy",
]

BLUE, ORANGE, GREEN, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#AA4499"
INK, GREY, GRID = "#222222", "#666666", "#DDDDDD"
DPI = 150


def new_figure(width: float = 9.6, height: float = 5.2) -> Figure:
    """An empty figure of so many inches."""
    return Figure(figsize=(width, height), dpi=DPI, facecolor="white")


def caption(figure: Figure, title: str, subtitle: str) -> None:
    """What is seen, over the picture, from its left edge."""
    height = figure.get_size_inches()[1]
    figure.text(0.02, 1 - 0.18 / height, title, fontsize=14, fontweight="bold", color=INK, va="top")
    figure.text(0.02, 1 - 0.50 / height, subtitle, fontsize=10, color=GREY, va="top")


def tidy(axes: Axes) -> None:
    """Less ink: no frame, faint lines across, grey ticks."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelsize=9.5, length=3)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(INK)
        label.set_fontsize(10.5)


def legend(axes: Axes) -> None:
    """The names of the lines, beside the plot at the right."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=10.5, handlelength=1.4)


def save(figure: Figure, path: Path) -> Path:
    """Write the figure as PNG."""
    figure.savefig(path)
    return path
