"""Durations and moments on the command line: ``30s``, ``1h30m``, ``2026-01-31T08:00``, ``10m`` ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from shardq.base.clock import read_duration

__all__ = ["coming_moment", "duration", "in_words", "past_moment", "since_option", "until_option"]

_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


def duration(text: str) -> float:
    """Parse the seconds of a duration, a number or with units. A type for options: a wrong value is a usage error."""
    try:
        return read_duration(str(text))
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def in_words(seconds: float) -> str:
    """Write a duration for people: ``45 s``, ``12 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.3g} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.1f} days"


def past_moment(text: str) -> datetime:
    """Parse ``2026-01-31``, ``2026-01-31T08:00:00+01:00``, or ``10m`` for ten minutes ago.

    The moment is in the user's time zone unless it has an offset. A type for options, as the next one.
    """
    return _moment(text, -1, "how long ago")


def coming_moment(text: str) -> datetime:
    """Parse a moment as :func:`past_moment`, but ``10m`` is in ten minutes."""
    return _moment(text, 1, "how long from now")


def _moment(text: str, sign: int, meaning: str) -> datetime:
    text = str(text).strip()
    try:
        return _full(text) or datetime.now(UTC) + sign * _distance(text)
    except (click.BadParameter, OverflowError, ValueError):
        raise click.BadParameter(
            f"{text!r} is not a moment: give ISO 8601, or {meaning}, such as 10m."
        ) from None


def _distance(text: str) -> timedelta:
    seconds = duration(text)
    if seconds < 0:
        raise ValueError(text)
    return timedelta(seconds=seconds)


def _full(text: str) -> datetime | None:
    """Parse a moment in ISO 8601. None if the text is something else."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.astimezone()


since_option = click.option(
    "--since",
    type=past_moment,
    metavar="MOMENT",
    help="Acked at this moment or later: ISO 8601, or a duration ago.",
)
until_option = click.option("--until", type=past_moment, metavar="MOMENT", help="Acked before this moment.")
