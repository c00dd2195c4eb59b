"""A workflow as a picture: a tree of text, a flowchart for Mermaid, or an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

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
_WIDTH, _HEIGHT, _RIGHT, _DOWN, _EDGE = 190, 40, 70, 14, 20  # of boxes and between them


def as_text(views: Sequence[TaskView]) -> str:
    """A line for each step, under the last of those that it waits for."""
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
    """A flowchart for Mermaid."""
    lines = ["flowchart LR"]
    for number, view in enumerate(views):
        text = _escaped(f"{view.number} {_name(view)}") + f"<br>{view.state}"
        lines.append(f'  s{number}["{text}"]:::{view.state}')
    joins, edges = _edges(views)
    lines += [f"  {join}(( ))" for join in joins]
    lines += [f"  {first} --> {second}" for first, second in edges]
    lines += [f"  classDef {state} fill:{colour},stroke:#555" for state, colour in _COLOURS.items()]
    return "\n".join(lines)


def as_svg(views: Sequence[TaskView]) -> str:
    """An SVG: what waits stands to the right of what it waits for."""
    places, (width, height) = _places(views)
    curves = [_curve(first, places[first], places[second]) for first, second in _edges(views)[1]]
    boxes = [_box(view, *places[f"s{number}"]) for number, view in enumerate(views)]
    size = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', *curves, *boxes, "</svg>"])


def _line(view: TaskView) -> str:
    after = "" if len(view.after) < 2 else f"after {_ranges(view.after)}"
    ended = "" if view.ended is None else view.ended.strftime("%Y-%m-%d %H:%M:%S")
    seconds = "" if view.seconds is None else f"{view.seconds:.3g} s"
    facts = [view.number, _name(view), view.state, ended, seconds, view.failure or "", after]
    return "  ".join(" ".join(fact.split()) for fact in facts if fact)


def _name(view: TaskView) -> str:
    return view.task if view.steps is None else f"{view.task} of {view.steps} steps"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in short: ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def _edges(views: Sequence[TaskView]) -> tuple[list[str], list[tuple[str, str]]]:
    """The names of joins, and pairs of names. Where several steps wait for the same several ones, a join is between."""
    waiting: dict[tuple[int, ...], list[int]] = {}
    for number, view in enumerate(views):
        if view.after:
            waiting.setdefault(view.after, []).append(number)
    joins: list[str] = []
    edges: list[tuple[str, str]] = []
    for after, numbers in waiting.items():
        if len(after) == 1 or len(numbers) == 1:
            edges += [(f"s{first}", f"s{second}") for first in after for second in numbers]
        else:
            joins.append(join := f"j{numbers[0]}")
            edges += [(f"s{first}", join) for first in after] + [(join, f"s{second}") for second in numbers]
    return joins, edges


def _places(views: Sequence[TaskView]) -> tuple[dict[str, tuple[int, int]], tuple[int, int]]:
    """Where boxes begin on the left, and their middles; joins stand before the first step behind them."""
    depths: list[int] = []
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for number, view in enumerate(views):
        depths.append(max((depths[other] + 1 for other in view.after), default=0))
        row = rows[depths[-1]] = rows.get(depths[-1], -1) + 1
        left, top = _EDGE + depths[-1] * (_WIDTH + _RIGHT), _EDGE + row * (_HEIGHT + _DOWN) + _HEIGHT // 2
        places[f"s{number}"], places[f"j{number}"] = (left, top), (left - _RIGHT // 2, top)
    columns, longest = max(depths, default=0) + 1, max(rows.values(), default=0) + 1
    width = 2 * _EDGE + columns * _WIDTH + (columns - 1) * _RIGHT
    return places, (width, 2 * _EDGE + longest * _HEIGHT + (longest - 1) * _DOWN)


def _curve(first: str, begin: tuple[int, int], end: tuple[int, int]) -> str:
    (left, top), (x, y) = begin, end
    left += _WIDTH if first.startswith("s") else 0
    bend = _RIGHT // 3
    path = f"M{left} {top} C{left + bend} {top} {x - bend} {y} {x} {y}"
    return f'<path d="{path}" fill="none" stroke="#888"/>'


def _box(view: TaskView, left: int, middle: int) -> str:
    top, text = middle - _HEIGHT // 2, f"{view.number} {_name(view)}"
    shown = text if len(text) <= 28 else f"{text[:27]}…"
    return (
        f'<g><title>{escape(_line(view))}</title><rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
        f'fill="{_COLOURS[view.state]}" stroke="#555"/><text x="{left + 8}" y="{middle - 3}">{escape(shown)}</text>'
        f'<text x="{left + 8}" y="{middle + 13}" fill="#555">{view.state}</text></g>'
    )


def _escaped(text: str) -> str:
    return text.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
