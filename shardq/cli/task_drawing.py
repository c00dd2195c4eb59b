"""A workflow as a picture: a tree of text, a flowchart for Mermaid, or an SVG."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.base import graphs
from shardq.base.graphs import Node
from shardq.tasks.views import TaskView

__all__ = ["as_mermaid", "as_svg", "as_text"]

_COLOURS = {
    "waiting": "#eeeeee",
    "running": "#cfe4ff",
    "done": "#cdeccd",
    "failed": "#f8c9c9",
    "cancelled": "#e3d5f0",
    "missing": "#fbe3b8",
}


def as_text(views: Sequence[TaskView]) -> str:
    """Return a line for each step, under the last of those that it waits for."""
    behind: dict[int, list[int]] = {}
    for number, view in enumerate(views):
        behind.setdefault(max(view.after, default=-1), []).append(number)
    lines: list[str] = []
    stack = [(number, "") for number in reversed(behind.get(-1, []))]
    while stack:
        number, indent = stack.pop()
        lines.append(indent + _line(views[number]))
        stack += [(other, f"{indent}   ") for other in reversed(behind.get(number, []))]
    return "\n".join(lines)


def as_mermaid(views: Sequence[TaskView]) -> str:
    """Return a flowchart for Mermaid."""
    return graphs.as_mermaid(_nodes(views), _COLOURS)


def as_svg(views: Sequence[TaskView]) -> str:
    """Draw an SVG: each task is to the right of those that it waits for."""
    return graphs.as_svg(_nodes(views), _COLOURS)


def _nodes(views: Sequence[TaskView]) -> list[Node]:
    return [
        Node(f"{view.number} {_label(view)}", view.state, view.state, _line(view), view.after)
        for view in views
    ]


def _line(view: TaskView) -> str:
    after = "" if len(view.after) < 2 else f"after {_ranges(view.after)}"
    ended = "" if view.ended is None else view.ended.strftime("%Y-%m-%d %H:%M:%S")
    seconds = "" if view.seconds is None else _seconds(view.seconds)
    facts = [view.number, _label(view), view.state, ended, seconds, view.failure or "", after]
    return "  ".join(" ".join(fact.split()) for fact in facts if fact)


def _seconds(seconds: float) -> str:
    """Return a duration without an exponent."""
    if 0 < seconds < 0.0001:
        return f"{seconds * 1_000_000:.3g} µs"
    return f"{seconds:.3g} s" if seconds < 1_000 else f"{seconds:,.0f} s"


def _label(view: TaskView) -> str:
    return view.task if view.steps is None else f"{view.task} of {view.steps} steps"


def _ranges(numbers: Sequence[int]) -> str:
    """Write numbers in short: ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
