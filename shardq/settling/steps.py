"""Cutting a move into steps, none of which is more than a store takes in one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardq.held import Selection

__all__ = ["in_steps"]

_ADDED_BYTES = 4096  # at most, to a message: the headers of a dead letter, and what a store keeps of a bundle


def in_steps(
    selections: Sequence[Selection], sizes: Callable[[Selection], Sequence[int]], most: int
) -> list[list[Selection]]:
    """The messages in steps of up to so many bytes, or of one message; ``sizes`` tells the bytes of each.

    A selection may be cut. The order stays.
    """
    steps: list[list[Selection]] = [[]]
    room = most
    for selection in selections:
        start = 0
        for number, size in enumerate(sizes(selection)):
            room -= size + _ADDED_BYTES
            if room < 0 and (steps[-1] or number > start):
                if number > start:
                    steps[-1].append(Selection(selection.held, selection.positions[start:number]))
                steps.append([])
                start, room = number, most - size - _ADDED_BYTES
        rest = Selection(selection.held, selection.positions[start:]) if start else selection
        steps[-1].append(rest)
    return steps
