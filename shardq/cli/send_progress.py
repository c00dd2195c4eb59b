"""What one sees of a long ``send``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shardq.cli.sending import SendReport

__all__ = ["SendProgress", "send_progress"]


class SendProgress:
    """Told how far it is; shows nothing."""

    def update(self, report: SendReport) -> None:
        """Take note of how far it is."""


@contextmanager
def send_progress(total: int | None, *, wanted: bool) -> Iterator[SendProgress]:
    """A bar on stderr with count, rate, bytes and time left, where stderr is a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield SendProgress()
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and mostly not needed
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.fields[sent]:,} messages"),
        BarColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("send", total=total, sent=0, rate=0.0)

        class _Bar(SendProgress):
            def update(self, report: SendReport) -> None:
                elapsed = bar.tasks[0].elapsed or 1.0
                bar.update(
                    task, completed=report.bytes, sent=report.sent, rate=report.sent / max(elapsed, 0.01)
                )

        yield _Bar()
