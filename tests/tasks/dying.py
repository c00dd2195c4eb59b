"""A store whose client ends at a change that it makes for tasks."""

from __future__ import annotations

from tests.dying_store import MortalStore

__all__ = ["Dying"]


class Dying(MortalStore):
    """Ends the process at a change, before or after it is made."""

    changes = ("append", "compare_and_set_keys", "acknowledge")
