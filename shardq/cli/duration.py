"""Durations on the command line: ``30``, ``1.5``, ``30s``, ``5m``, ``2h``, ``7d``, ``1h30m``."""

from __future__ import annotations

import re

import click

__all__ = ["duration", "in_words"]

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_WHOLE = re.compile(rf"(?:{_PART})+")
_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


def duration(text: str) -> float:
    """Seconds, given as such or with units; a type of click's options, so a wrong value is a usage error."""
    text = str(text).strip()
    if _WHOLE.fullmatch(text):
        return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, text))
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no duration: give seconds, or a number with ms, s, m, h or d."
        ) from None


def in_words(seconds: float) -> str:
    """A duration for people: ``45 s``, ``12 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.3g} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.1f} days"
