"""Calling methods around forks of the process."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

__all__ = ["watch_forks"]


def watch_forks(
    *, after_in_child: Callable[[], None], before: Callable[[], None], after_in_parent: Callable[[], None]
) -> None:
    """Call the bound methods around every fork, for as long as their object lives."""
    os.register_at_fork(
        before=_weakly(before),
        after_in_parent=_weakly(after_in_parent),
        after_in_child=_weakly(after_in_child),
    )


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    reference = weakref.WeakMethod(method)

    def call() -> None:
        living = reference()
        if living is not None:
            living()

    return call
