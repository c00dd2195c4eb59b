"""Graphs as pictures: a flowchart for Mermaid, or an SVG. Workflows and pipelines are drawn by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import msgspec

__all__ = ["Node", "as_mermaid", "as_svg"]

_WIDTH, _HEIGHT, _RIGHT, _DOWN, _EDGE = 190, 40, 70, 14, 20  # of boxes and between them
_LONGEST = 28  # characters of a line in a box
_LONGEST_LABEL = 11  # and of a label between two boxes


class Node(msgspec.Struct, frozen=True):
    """A box: two lines, the text under the mouse, and the boxes before it, which are earlier in the list.

    ``kind`` chooses its colour. ``labels`` are those of the lines from the boxes before it, one for each, if any.
    """

    text: str
    note: str
    kind: str
    title: str = ""
    after: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()


class _Line(msgspec.Struct, frozen=True):
    """From one name to another: ``s`` and the number of a box, ``j`` and a number for a join."""

    first: str
    second: str
    label: str = ""


def as_mermaid(nodes: Sequence[Node], colours: Mapping[str, str]) -> str:
    """Write a flowchart for Mermaid."""
    lines = ["flowchart LR"]
    for number, node in enumerate(nodes):
        note = f"<br>{mermaid_text(node.note)}" if node.note else ""
        lines.append(f'  s{number}["{mermaid_text(node.text)}{note}"]:::{node.kind}')
    joins, edges = _edges(nodes)
    lines += [f"  {join}(( ))" for join in joins]
    for edge in edges:
        label = f'|"{mermaid_text(edge.label)}"|' if edge.label else ""
        lines.append(f"  {edge.first} -->{label} {edge.second}")
    lines += [f"  classDef {kind} fill:{colour},stroke:#555" for kind, colour in colours.items()]
    return "\n".join(lines)


def as_svg(nodes: Sequence[Node], colours: Mapping[str, str]) -> str:
    """Draw an SVG, in which each box is to the right of the boxes before it."""
    places, (width, height) = _places(nodes)
    curves = [_curve(edge, places[edge.first], places[edge.second]) for edge in _edges(nodes)[1]]
    boxes = [_box(node, colours[node.kind], *places[f"s{number}"]) for number, node in enumerate(nodes)]
    size = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', *curves, *boxes, "</svg>"])


def mermaid_text(text: str) -> str:
    """Escape a text for the quotes of Mermaid."""
    return text.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _edges(nodes: Sequence[Node]) -> tuple[list[str], list[_Line]]:
    """Return the names of joins, and the lines.

    Where several boxes come after the same several ones, a join is between.
    """
    behind: dict[tuple[int, ...], list[int]] = {}
    edges: list[_Line] = []
    for number, node in enumerate(nodes):
        if node.labels:
            edges += [
                _Line(f"s{first}", f"s{number}", label)
                for first, label in zip(node.after, node.labels, strict=True)
            ]
        elif node.after:
            behind.setdefault(node.after, []).append(number)
    joins: list[str] = []
    for after, numbers in behind.items():
        if len(after) == 1 or len(numbers) == 1:
            edges += [_Line(f"s{first}", f"s{second}") for first in after for second in numbers]
        else:
            joins.append(join := f"j{numbers[0]}")
            edges += [_Line(f"s{first}", join) for first in after]
            edges += [_Line(join, f"s{second}") for second in numbers]
    return joins, edges


def _places(nodes: Sequence[Node]) -> tuple[dict[str, tuple[int, int]], tuple[int, int]]:
    """Place boxes by their left edge and their middle; joins are before the first box behind them."""
    depths: list[int] = []
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for number, node in enumerate(nodes):
        depths.append(max((depths[other] + 1 for other in node.after), default=0))
        row = rows[depths[-1]] = rows.get(depths[-1], -1) + 1
        left, top = _EDGE + depths[-1] * (_WIDTH + _RIGHT), _EDGE + row * (_HEIGHT + _DOWN) + _HEIGHT // 2
        places[f"s{number}"], places[f"j{number}"] = (left, top), (left - _RIGHT // 2, top)
    columns, longest = max(depths, default=0) + 1, max(rows.values(), default=0) + 1
    width = 2 * _EDGE + columns * _WIDTH + (columns - 1) * _RIGHT
    return places, (width, 2 * _EDGE + longest * _HEIGHT + (longest - 1) * _DOWN)


def _curve(line: _Line, begin: tuple[int, int], end: tuple[int, int]) -> str:
    (left, top), (x, y) = begin, end
    left += _WIDTH if line.first.startswith("s") else 0
    bend = _RIGHT // 3
    path = f"M{left} {top} C{left + bend} {top} {x - bend} {y} {x} {y}"
    drawn = f'<path d="{path}" fill="none" stroke="#888"/>'
    if not line.label:
        return drawn
    place = f'x="{left + 4}" y="{top - 4}" font-size="10" fill="#555"'
    title = f"<title>{escape(line.label)}</title>"
    return f"{drawn}<text {place}>{title}{escape(_short(line.label, _LONGEST_LABEL))}</text>"


def _box(node: Node, colour: str, left: int, middle: int) -> str:
    top = middle - _HEIGHT // 2
    return (
        f'<g><title>{escape(node.title)}</title><rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
        f'fill="{colour}" stroke="#555"/><text x="{left + 8}" y="{middle - 3}">{escape(_short(node.text))}</text>'
        f'<text x="{left + 8}" y="{middle + 13}" fill="#555">{escape(_short(node.note))}</text></g>'
    )


def _short(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
