"""How much is done, told by the functions that are called: the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

__all__ = ["function_calls"]


def function_calls(do: Callable[[], object]) -> int:
    """Return how many functions are called, those of C too."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(None)
    return calls
