"""Moments on the command line: ISO 8601, or a duration from now, back or ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from shardq.cli.duration import duration

__all__ = ["coming_moment", "past_moment"]


def past_moment(text: str) -> datetime:
    """``2026-01-31``, ``2026-01-31T08:00:00+01:00``, or ``10m`` for ten minutes ago.

    In the user's time zone unless it says otherwise. A type of click's options, as the next one.
    """
    return _moment(text, -1, "how long ago")


def coming_moment(text: str) -> datetime:
    """As :func:`past_moment`, but ``10m`` is in ten minutes: a moment in the past needs its full form."""
    return _moment(text, 1, "how long from now")


def _moment(text: str, sign: int, meaning: str) -> datetime:
    text = str(text).strip()
    try:
        return _full(text) or datetime.now(UTC) + sign * _distance(text)
    except (click.BadParameter, OverflowError, ValueError):
        raise click.BadParameter(
            f"{text!r} is no moment: give ISO 8601, or {meaning}, such as 10m."
        ) from None


def _distance(text: str) -> timedelta:
    seconds = duration(text)
    if seconds < 0:
        raise ValueError(text)
    return timedelta(seconds=seconds)


def _full(text: str) -> datetime | None:
    """A moment in its full form; None for what is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.astimezone()
