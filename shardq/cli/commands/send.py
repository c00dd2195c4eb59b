"""``shardq send``."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from shardq.base.outgoing_message import DEFAULT_PRIORITY, OnConflict, OutgoingMessage
from shardq.cli.command import (
    ExampleCommand,
    Session,
    codec_option,
    headers_option,
    json_option,
    queue_argument,
)
from shardq.cli.message_line import parse_line, parse_plain
from shardq.cli.output import check_output, goes_through
from shardq.cli.printing import many, note, print_json, print_line
from shardq.cli.sending import (
    Parse,
    Piece,
    SendReport,
    Stop,
    Unsent,
    Watcher,
    none_sent,
    pieces_of_lines,
    pieces_of_texts,
    send_pieces,
)
from shardq.cli.times import coming_moment, duration, in_words
from shardq.client.producer import SendArguments
from shardq.errors import ShardqError

__all__ = ["send"]


class _ExistingFile(click.Path):
    """A file. For - it names the way in which stdin is sent."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check the file. Fails for -."""
        if value == "-":
            self.fail("'-' is not a file: `shardq send QUEUE -` sends each line of stdin", param, ctx)
        return super().convert(value, param, ctx)


_FILE = _ExistingFile(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(
    cls=ExampleCommand, example="shardq send orders --file orders.jsonl --jsonl --unsent rest.jsonl"
)
@queue_argument
@click.argument("bodies", metavar="[BODY...]", nargs=-1)
@click.option("--file", "-f", type=_FILE, help="Send each line of a file. BODY - sends each line of stdin.")
@click.option("--large", type=_FILE, help="Send a whole file, of any size, as one message.")
@click.option("--jsonl", is_flag=True, help="Each line or BODY is a JSON object, see above.")
@click.option(
    "--once",
    is_flag=True,
    help="With --jsonl: store each printed message once, however often its line is sent.",
)
@click.option(
    "--priority", type=int, default=DEFAULT_PRIORITY, show_default=True, help="0 is delivered first, 9 last."
)
@click.option("--delay", type=duration, default=0.0, help="Deliver after this time.")
@click.option(
    "--due",
    type=coming_moment,
    metavar="MOMENT",
    help="Deliver from this moment on: ISO 8601, or a duration from now.",
)
@click.option(
    "--ttl",
    type=duration,
    metavar="DURATION",
    help="Stop delivering it when this time has passed since it was due.",
)
@headers_option
@click.option("--dedupe-key", help="Store no second message with this key for a time. For one BODY.")
@click.option(
    "--unique-key", help="Store no second message with this key while the first one is in the queue."
)
@click.option(
    "--on-conflict",
    type=click.Choice(get_args(OnConflict)),
    default="keep",
    show_default=True,
    help="The action when another message has the unique key.",
)
@click.option("--group", help="Deliver the messages of this group in order, one after the other.")
@click.option(
    "--unsent",
    type=_NEW_FILE,
    callback=check_output,
    help="A new file for the lines that were not sent, as JSON lines; also after Ctrl-C.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print no ids.")
@codec_option
@json_option
@click.pass_obj
def send(
    session: Session,
    /,
    queue: str,
    bodies: tuple[str, ...],
    file: Path | None,
    large: Path | None,
    jsonl: bool,
    once: bool,
    unsent: Path | None,
    quiet: bool,
    codec: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Send messages: arguments, lines or JSON lines.

    Prints the id of each message when it is stored, or with --json one object at the end. If only a part is stored,
    that object also has the error and the lines or arguments that are not stored. These are the numbers in unsent, and
    all behind number unsent_after.

    A line of --jsonl is an object with a body (a string, or any value with --codec json) or a body_base64. It may have
    priority, delay, due, ttl, headers, dedupe_key, unique_key, on_conflict, group and id, which replace the options. A
    header's value that is bytes is written as {"base64": ...}, one that is not a finite number as {"number": "nan"},
    "inf" or "-inf". Empty lines are skipped. A due time without an offset is in your time zone; 10m means in ten
    minutes. Lines that receive, peek, get and history print with --json are taken too, as new messages. With --once
    the id in such a line is the dedupe key of the copy, for the queue's dedupe window. A line with a unique key keeps
    that instead.
    """
    _check_keys(bodies, options)
    if once and not jsonl:
        raise click.UsageError("--once is for the lines of --jsonl, which have the ids of messages.")
    shared = OutgoingMessage(body=b"", **options)  # the options of a message without a body
    if large is not None:
        if bodies or file is not None or jsonl or unsent is not None or codec != "bytes":
            raise click.UsageError(
                "--large is one message: give no BODY, --file, --jsonl, --unsent or --codec."
            )
        _send_large(session, queue, large, shared, quiet=quiet, as_json=as_json)
        return
    if file is not None and file.suffix == ".jsonl" and not jsonl:
        note(f"each line of {file} is sent as a body: with --jsonl it is read as a message")
    read = partial(parse_line, queue=queue, once=once) if jsonl else parse_plain
    parse = partial(read, codec=codec, shared=shared)
    keep = None if unsent is None else Unsent(_unused(unsent, file), codec)
    size = file.stat().st_size if file is not None else None
    show = _Show(quiet=quiet or as_json, keep_ids=as_json and not quiet)
    try:
        with send_progress(size, wanted=not sys.stdout.isatty() or quiet or as_json) as progress:
            show.progress = progress
            _run(session, queue, _pieces(bodies, file, parse), keep, show)
    except (ShardqError, KeyboardInterrupt) as error:
        if as_json and show.report.sent:  # the ids of what is stored are known by nobody else
            stopped = error if isinstance(error, ShardqError) else None  # Ctrl-C may come within a send
            _finish(session, show, queue, as_json=True, error=stopped)
        raise
    _finish(session, show, queue, as_json=as_json)


def _check_keys(bodies: Sequence[str], options: Mapping[str, Any]) -> None:
    """Raise UsageError for a key of one message that is given with several."""
    for name in ("dedupe_key", "unique_key"):
        if options[name] is not None and len(bodies) > 1:
            option = name.replace("_", "-")
            raise click.UsageError(
                f"--{option} is for one BODY: give {name} in the lines of --jsonl instead."
            )


def _send_large(
    session: Session, queue: str, path: Path, shared: OutgoingMessage, *, quiet: bool, as_json: bool
) -> None:
    options = {name: getattr(shared, name) for name in SendArguments.__annotations__}
    with session.queue(queue).producer() as producer, _Counted(path) as file:
        identity = producer.send_stream(file, **options)
    if as_json:
        print_json({"queue": queue, "sent": 1, "bytes": file.count} | ({} if quiet else {"ids": [identity]}))
    elif not quiet:
        print_line(identity)
    _report_known(session, 1)


class _Counted(io.FileIO):
    """A file, and how many bytes were read of it: the size of a pipe is unknown."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        some = super().read(-1 if size is None else size)
        self.count += len(some)
        return some


def _unused(unsent: Path, file: Path | None) -> Path:
    """Return the path, if nothing is lost when a file of that name is written."""
    is_new = goes_through(unsent) or not unsent.exists() or not unsent.stat().st_size
    if not is_new and not (file is not None and unsent.samefile(file)):
        raise click.UsageError(
            f"--unsent {unsent}: the file has lines, which may be all that is left of an earlier send: "
            "send it or move it away first."
        )
    return unsent


class _Show:
    """Prints ids, or keeps them for the end, and knows the progress."""

    def __init__(self, *, quiet: bool, keep_ids: bool) -> None:
        self._quiet = quiet
        self.ids: list[str] | None = [] if keep_ids else None
        self.report, self.progress = SendReport(), SendProgress()
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def __call__(self, report: SendReport, ids: Sequence[str]) -> None:
        self.report = report
        self.progress.update(report)
        if self.ids is not None:
            self.ids += ids
        if not self._quiet and ids:
            sys.stdout.write("\n".join(ids) + "\n")
            sys.stdout.flush()


def _run(
    session: Session, /, queue: str, pieces: Iterator[Piece], unsent: Unsent | None, watch: Watcher
) -> None:
    stop = Stop()
    with nullcontext() if unsent is None else _stopped_by_signals(stop):
        try:
            producer = session.queue(queue).producer()
        except ShardqError as error:
            raise none_sent(error, queue, pieces, unsent) from error
        with producer:
            send_pieces(producer, queue, pieces, unsent, watch, stop)


def _stopped_by_signals(stop: Stop) -> AbstractContextManager[None]:
    from shardq.worker.signals import stop_signals  # noqa: PLC0415 -- other sends need no workers

    return stop_signals(stop.ask)


def _finish(
    session: Session, show: _Show, queue: str, *, as_json: bool, error: ShardqError | None = None
) -> None:
    sent, seconds = show.report.sent, show.seconds
    if as_json:
        facts = {"queue": queue, "sent": sent, "bytes": show.report.bytes, "seconds": round(seconds, 3)}
        ids = {"ids": show.ids} if show.ids is not None else {}
        print_json(facts | ids | (_what_is_left(show.report, error) if error is not None else {}))
    elif sent > 1:
        rate = sent / seconds
        per_second = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        note(f"{many(sent, 'message')} sent in {in_words(seconds)}, {per_second}/s")
    _report_known(session, sent)


def _what_is_left(report: SendReport, error: ShardqError) -> dict[str, Any]:
    """Report why a send ended early, and which lines or arguments are not stored: some, and all after the last."""
    return {"error": str(error), "unsent": report.unsent, "unsent_after": report.last}


def _report_known(session: Session, sent: int) -> None:
    if known := session.client.counters.deduplicated:
        note(f"{known:,} of {sent:,} not stored: another message has the key, and its id is the one given")


def _pieces(bodies: tuple[str, ...], file: Path | None, parse: Parse) -> Iterator[Piece]:
    if (file is not None) == bool(bodies):
        raise click.UsageError("Give one of: bodies, --file, or - for stdin.")
    if file is not None:
        with file.open("rb") as stream:
            yield from pieces_of_lines(stream, parse)
    elif bodies == ("-",):
        yield from pieces_of_lines(sys.stdin.buffer, parse)
    else:
        yield from pieces_of_texts(bodies, parse)


class SendProgress:
    """Takes the progress and shows nothing."""

    def update(self, report: SendReport) -> None:
        """Take note of the progress."""


@contextmanager
def send_progress(total: int | None, *, wanted: bool) -> Iterator[SendProgress]:
    """Show count, rate, bytes and the time left in a bar on stderr, if stderr is a terminal."""
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
