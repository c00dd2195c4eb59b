"""Moments on the command line: ISO 8601, or how long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from shardq.cli.duration import duration

__all__ = ["moment"]


def moment(text: str) -> datetime:
    """``2026-01-31``, ``2026-01-31T08:00:00+01:00``, or ``10m`` for ten minutes ago. UTC unless it says otherwise."""
    text = str(text).strip()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return _ago(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _ago(text: str) -> datetime:
    try:
        return datetime.now(UTC) - timedelta(seconds=duration(text))
    except (click.BadParameter, OverflowError, ValueError):
        raise click.BadParameter(
            f"{text!r} is no moment: give ISO 8601, or how long ago, such as 10m."
        ) from None
