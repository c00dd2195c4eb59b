"""Ids and receipts, from the arguments or from stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

__all__ = ["given_words"]


def given_words(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments; for ``-``, or when there are none, the first word of each line of stdin."""
    for argument in arguments or ("-",):
        if argument != "-":
            yield argument
            continue
        for line in sys.stdin:
            if words := line.split(maxsplit=1):
                yield words[0]
