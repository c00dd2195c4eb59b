"""``shardq list``. It reads names from the store itself, so it starts without what sends, receives and settles."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import click
import msgspec

from shardq.base.shard import listed, may_begin_a_name
from shardq.cli.command import ReadCommand, Session, complete_queues, json_option, read_each
from shardq.cli.printing import columns, print_columns, print_json, print_line
from shardq.cli.times import duration, in_words
from shardq.core.context.retry import Retry

__all__ = ["counted", "lines", "list_queues", "rows_of"]

_SECONDS = 1.0


class QueueLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A queue in the list. All but the name is there only if it is asked for."""

    name: str
    counts: Any = None  # its QueueCounts
    oldest_seconds: float | None = None  # since its oldest message was sent
    late_seconds: float | None = None  # for which a message has been due that was not received
    per_second: dict[str, float] | None = None  # the growth of each count


@click.command("list", cls=ReadCommand, example="shardq list --counts\nshardq list shop. --watch")
@click.argument("prefix", default="", shell_complete=complete_queues)
@click.option("--counts", is_flag=True, help="Show the messages of each queue by state, and their ages.")
@click.option(
    "--interval", type=duration, help="Count again after this time, for changes per second.  [1 with --watch]"
)
@click.option("--watch", is_flag=True, help="Count until Ctrl-C, with changes per second.")
@json_option
@click.pass_obj
def list_queues(
    session: Session, prefix: str, counts: bool, interval: float | None, watch: bool, as_json: bool
) -> None:
    """List the queues.

    With PREFIX only queues whose names start with it. Queues that shardq makes for itself are shown for a PREFIX that
    begins with _shardq/. Exit code 3 means that the store's file does not exist.

    Oldest is the age of the oldest message that is not processed. Late is for how long the first ready message has
    been due. Dead letters are due at once, so their queue is late until they are redriven. The change is that of all
    messages that are not processed. --watch --json prints a line of JSON each time.
    """
    session.only_reads = not watch  # which continues when the store was unreachable for a moment
    if counts or watch or interval is not None:
        _show_counts(session, prefix, interval, watch=watch, as_json=as_json)
        return
    found = lines(session, prefix, counts=False)
    if not found:
        session.check_file()
    if as_json:
        print_json({"queues": found})
    else:
        for line in found:
            print_line(line.name)


def _show_counts(
    session: Session, prefix: str, interval: float | None, *, watch: bool, as_json: bool
) -> None:
    from shardq.cli.commands.stats import LONGEST_INTERVAL  # noqa: PLC0415 - a list of names needs none of these
    from shardq.core.settings import check_number  # noqa: PLC0415

    if interval is not None:
        check_number("interval", interval, 0.0, LONGEST_INTERVAL)
    found = counted(session, prefix, _SECONDS if interval is None else interval)
    if not watch:
        found = islice(found, 1, 2) if interval is not None else islice(found, 1)
    if watch and not as_json and sys.stdout.isatty():
        _watch_live(found)
        return
    for each in found:
        if not each:
            session.check_file()
        if as_json:
            print_json({"queues": each})
        else:
            print_columns(rows_of(each))
            if watch:
                print_line("")
        sys.stdout.flush()


def counted(session: Session, prefix: str, interval: float) -> Iterator[list[QueueLine]]:
    """Yield the queues with their counts and ages without end, from the second time on with changes per second."""
    from shardq.cli.stats_view import STATES, changes  # noqa: PLC0415 - as above

    before: dict[str, dict[str, int]] = {}
    then = None
    while True:
        found, now = lines(session, prefix, counts=True), session.client.now()
        numbers = {line.name: {state: getattr(line.counts, state) for state in STATES} for line in found}
        elapsed = 0.0 if then is None else (now - then).total_seconds()
        yield [
            msgspec.structs.replace(
                line,
                oldest_seconds=None if (sent := line.counts.oldest) is None else (now - sent).total_seconds(),
                late_seconds=line.counts.late_seconds(now),
                per_second=changes(numbers[line.name], before[line.name], elapsed)
                if line.name in before
                else None,
            )
            for line in found
        ]
        before, then = numbers, now
        time.sleep(max(interval, 0.05))


def rows_of(found: Sequence[QueueLine]) -> list[tuple[object, ...]]:
    """Show counted queues as rows, below a header. The change is that of all messages that are not processed."""
    has_rates = any(line.per_second is not None for line in found)
    header = ("queue", "ready", "delayed", "in flight", "oldest", "late", "change")
    return [row if has_rates else row[:-1] for row in (header, *map(_row, found))]


def _row(line: QueueLine) -> tuple[object, ...]:
    counts, rates = line.counts, line.per_second
    oldest = "" if line.oldest_seconds is None else in_words(max(line.oldest_seconds, 0.0))
    late = in_words(line.late_seconds) if line.late_seconds else ""
    change = "" if rates is None else f"{sum(rates.values()) - rates['processed']:+,.1f}/s"
    return line.name, counts.ready, counts.delayed, counts.in_flight, oldest, late, change


def _watch_live(found: Iterator[list[QueueLine]]) -> None:
    from rich.live import Live  # noqa: PLC0415 - slow to import, as below
    from rich.text import Text  # noqa: PLC0415

    with Live(auto_refresh=False) as live:
        for each in found:
            live.update(Text("\n".join(columns(rows_of(each)))), refresh=True)


def lines(session: Session, prefix: str, *, counts: bool) -> list[QueueLine]:
    """Return the queues, with their counts if ``counts`` is set."""
    if not may_begin_a_name(prefix):
        return []
    names = listed(Retry(session.retry_seconds)(session.store.list_queues, prefix), prefix)
    if not counts:
        return [QueueLine(name) for name in names]
    queue = session.client.queue
    return list(read_each(names, lambda name: QueueLine(name, queue(name).counts()), session.skipped_errors))
