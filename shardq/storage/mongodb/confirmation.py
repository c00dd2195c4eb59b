"""How writes have to be confirmed: what weakens that for certain is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardq.errors import InvalidSetting

__all__ = ["check"]


def check(concern: Mapping[str, Any]) -> None:
    """Raise InvalidSetting for writes that fewer than two members confirm, or from memory."""
    acknowledged, journal = concern.get("w", "majority"), concern.get("j", True)
    if isinstance(acknowledged, int) and acknowledged < 2:
        raise InvalidSetting(
            f"w={acknowledged} in the MongoDB URL lets what was confirmed be lost with one server: "
            "leave w out, so that a majority confirms each write"
        )
    if not journal:
        raise InvalidSetting(
            "journal=false in the MongoDB URL lets what was confirmed be lost when servers lose power: "
            "leave journal out, so that each write is confirmed from the journal"
        )
