"""The history of queues on the command line: taking part in keeping it, and drawing it in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import click

from shardq.cli.times import in_words

if TYPE_CHECKING:
    from shardq.history import History
    from shardq.metrics.measures import Measures

__all__ = ["COLUMNS", "SHORT_COLUMNS", "drawn", "drawn_lines", "history_option", "keeping_history"]

COLUMNS = 48
"""Steps of a drawing: with its labels and numbers it has at most 80 columns."""

SHORT_COLUMNS = 30
"""Steps where each queue has one line."""

RETRY_SECONDS = 1.0
_LABEL, _LONGEST_NAME = 9, 28  # characters before the bars
_BARS = "▁▂▃▄▅▆▇█"
_UNKNOWN = " "

history_option = click.option(
    "--history/--no-history",
    "keeps_history",
    default=True,
    envvar="SHARDQ_HISTORY",
    show_envvar=True,
    help="Help to keep the history of queues, for charts.  [on]",
)


@contextmanager
def keeping_history(url: str | None, measures: Callable[[], Measures] | None = None) -> Iterator[None]:
    """Keep the history of the queues of a store while the block runs; None: of no store."""
    if url is None:
        yield
        return
    from shardq.client import connect  # noqa: PLC0415 - few commands need it
    from shardq.history import Sampler  # noqa: PLC0415 - as above

    with connect(url, retry_seconds=RETRY_SECONDS) as client, Sampler(client, measures=measures) as sampler:
        sampler.start()
        yield


def drawn(history: History) -> Iterator[str]:
    """Yield the lines of a drawing: a row of bars for each number, from the oldest step to the newest."""
    points, name = history.points, history.queue or "all queues"
    incoming = _named("in", history.incoming_estimated)
    outgoing = _named("out", history.outgoing_estimated)
    yield f"{name}, {in_words(history.step)} a column"
    yield _line("ready", [point.ready for point in points], _whole)
    yield _line("in flight", [point.in_flight for point in points], _whole)
    yield _line(incoming, [point.incoming for point in points], _rate)
    yield _line(outgoing, [point.outgoing for point in points], _rate)
    rows: Sequence[tuple[str, Sequence[float | None], Callable[[float], str]]] = (
        ("delayed", [point.delayed for point in points], _whole),
        ("late", [point.late_seconds for point in points], _duration),
        ("failed", [point.failed for point in points], _rate),
        ("wait p95", [each.wait.p95 if each.wait else None for each in points], _duration),
        ("work p95", [each.processing.p95 if each.processing else None for each in points], _duration),
    )
    for label, values, shown in rows:
        if any(values):  # most queues have no delayed messages, for one
            yield _line(label, values, shown)
    yield _axis(history.since.astimezone(), history.until.astimezone(), len(points))
    if history.incoming_estimated or history.outgoing_estimated:
        yield "* estimated from the number of messages: not all senders or consumers report"


def drawn_lines(histories: Sequence[History]) -> Iterator[str]:
    """Yield a line for each queue: its messages that are not processed, from the oldest step to the newest."""
    names = [_cut(history.queue or "") for history in histories]
    width = max(map(len, names))
    yield f"messages, {in_words(histories[0].step)} a column"
    for name, history in zip(names, histories, strict=True):
        yield _line(name, [point.depth for point in history.points], _whole, width)


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _named(label: str, estimated: bool) -> str:
    return f"{label} *" if estimated else label


def _line(
    label: str, values: Sequence[float | None], shown: Callable[[float], str], width: int = _LABEL
) -> str:
    """Return a label, the bars, the newest value and the highest one."""
    known = [value for value in values if value is not None]
    if not known:
        return f"{label:<{width}} {'':{len(values)}} unknown"
    most = max(known)
    bars = "".join(_UNKNOWN if value is None else _bar(value, most) for value in values)
    return f"{label:<{width}} {bars} {shown(known[-1])}, max {shown(most)}"


def _bar(value: float, most: float) -> str:
    return _BARS[0] if most <= 0 else _BARS[min(len(_BARS) - 1, int(value / most * len(_BARS)))]


def _axis(since: datetime, until: datetime, width: int) -> str:
    start, end = f"{since:%H:%M}", f"{until:%H:%M}"
    return f"{'':<{_LABEL}} {start}{end:>{max(0, width - len(start))}}"


def _whole(value: float) -> str:
    """Write a number in at most 6 characters."""
    return _short(value) if value >= 100_000 else f"{value:,.0f}"


def _rate(value: float) -> str:
    return f"{_short(value)}/s"


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _duration(value: float) -> str:
    """Write a duration in at most 6 characters."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value * 1_000:.3g}ms" if value else "0s"
