"""The common parts of the commands: the connection, examples in their help, and arguments and options."""

from __future__ import annotations

import io
import sys
import threading
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, redirect_stderr, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from shardq.cli.failures import SkippedErrors
    from shardq.client import Client
    from shardq.client.queue import Queue
    from shardq.storage.abilities import SavedStore
    from shardq.storage.store import Store

__all__ = [
    "URL_OF_COMMAND",
    "ExampleCommand",
    "ExampleGroup",
    "ReadCommand",
    "Session",
    "codec_option",
    "complete_queues",
    "given_words",
    "headers_option",
    "json_option",
    "pattern_argument",
    "pattern_yes_option",
    "processes_option",
    "queue_argument",
    "read_each",
    "worked_queues",
    "yes_option",
]


T = TypeVar("T")

READ_SECONDS = 4.0
"""For which a command that only reads repeats what fails. With an attempt to connect before and after, that is 8."""

CHECKED_BYTES = 64_000_000
"""Of a store's file that a command that only reads checks: that takes up to a fifth of a second."""

URL_OF_COMMAND = "shardq.url"
"""Where the URL behind the name of a command is kept while a shell completes it."""

OTHER_WORDS = {"workflow": "task", "workflows": "task"}
"""Other words for a command, which are not similar to its name."""


class ExampleCommand(click.Command):
    """A command whose help ends with an example: one or more lines to type."""

    def __init__(self, *arguments: Any, example: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example at the end of the help."""
        super().format_epilog(ctx, formatter)
        write_example(self.example, formatter)


class ReadCommand(ExampleCommand):
    """A command that only reads.

    It gives up soon where the store is unreachable: a user waits for its output. It shows the readable part of a
    damaged file, and fails then, unless it ``reports_damage`` itself.
    """

    def __init__(self, *arguments: Any, reports_damage: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.reports_damage = reports_damage

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, whose store is asked less patiently, and then check the store's file."""
        session = ctx.ensure_object(Session)
        session.only_reads = True
        try:
            result = super().invoke(ctx)
        except Exception as error:
            # Something that was not found may be damaged. A store that is busy or away is not asked again.
            if not (self.reports_damage or getattr(error, "retryable", False)):
                session.check_integrity()
            raise
        if not self.reports_damage:
            session.check_integrity()
        return result


class ExampleGroup(click.Group):
    """A group whose help ends with an example, as that of its commands does."""

    command_class = ExampleCommand

    def __init__(self, *arguments: Any, example: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.example = example

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command. The error for an unknown name suggests the most similar one."""
        if ctx.resilient_parsing or self.get_command(ctx, args[0]) is not None:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches  # noqa: PLC0415 - for a wrong name only

        name = OTHER_WORDS.get(args[0], args[0])
        near = get_close_matches(name, self.list_commands(ctx), n=1)
        if near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example at the end of the help."""
        super().format_epilog(ctx, formatter)
        write_example(self.example, formatter)


def write_example(example: str, formatter: click.HelpFormatter) -> None:
    """Write the lines of an example without wrapping them."""
    with formatter.section("Example"):
        for line in example.splitlines():
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class Session:
    """One run of the command line: the URL of the store, and a connection that is opened when it is needed."""

    def __init__(self, url: str, *, given: bool = False) -> None:
        self._url, self.given = url, given  # on the command line, and not by default or by the environment
        self.only_reads = False
        """True for a command that only reads. Set it before the store is used."""
        self._warning: threading.Timer | None = None

    @property
    def retry_seconds(self) -> float:
        """How long a request to the store that fails is repeated."""
        from shardq.core.context.retry import RETRY_SECONDS  # noqa: PLC0415 - the help needs none of these

        return READ_SECONDS if self.only_reads else RETRY_SECONDS

    @property
    def url(self) -> str:
        """The URL of the store. Raises InvalidSetting for one that is empty, or ends with the command."""
        from shardq.errors import InvalidSetting  # noqa: PLC0415 - the help needs none of these
        from shardq.storage.opening import check_between_processes  # noqa: PLC0415

        if not self._url:
            where, otherwise = (
                ("give --url", "leave it out") if self.given else ("set SHARDQ_URL to", "unset it")
            )
            raise InvalidSetting(
                f"the URL of the store is empty: {where} one such as 'sqlite:///queue.db', or {otherwise}"
            )
        check_between_processes(self._url, "each command is a separate process")
        return self._url

    @url.setter
    def url(self, url: str) -> None:
        self._url, self.given = url, True

    @cached_property
    def store(self) -> Store:
        """The store, which opens its connections itself."""
        from shardq.cli.failures import warn_if_unreachable  # noqa: PLC0415 - the help needs none of these

        store = self.quiet_store()
        self._warning = warn_if_unreachable(store)
        return store

    @cached_property
    def skipped_errors(self) -> SkippedErrors:
        """Takes the errors of what the command cannot read, and decides its exit code."""
        from shardq.cli.failures import SkippedErrors  # noqa: PLC0415 - the help needs none of these

        return SkippedErrors()

    def quiet_store(self) -> Store:
        """Open a store for a command that is alone with it: nothing pings the store beside that."""
        from shardq.base.clock import SystemClock  # noqa: PLC0415 - the help needs none of these
        from shardq.storage.opening import open_store  # noqa: PLC0415

        return open_store(self.url, SystemClock(), retry_seconds=self.retry_seconds)

    @cached_property
    def client(self) -> Client:
        """A client of the store."""
        from shardq.client import Client  # noqa: PLC0415

        return Client(self.store, retry_seconds=self.retry_seconds)

    def queue(self, name: str) -> Queue:
        """Open an existing queue. Raises QueueNotFound, which suggests the most similar name, or StoreMissing."""
        from shardq.errors import QueueNotFound  # noqa: PLC0415

        try:
            return self.client.queue(name)
        except QueueNotFound as error:
            self.check_file()
            from difflib import get_close_matches  # noqa: PLC0415 - for a wrong name only

            if near := get_close_matches(name, self.client.queues(), n=1):
                raise QueueNotFound(f"{error}; did you mean {near[0]!r}?") from error
            raise

    def check_file(self) -> None:
        """Raise StoreMissing if there is no queue because the store's file does not exist."""
        from shardq.cli.failures import StoreMissing  # noqa: PLC0415

        for finding in self.store.diagnose():
            if finding.name == "file" and not finding.ok:
                raise StoreMissing(f"{finding.value}: {finding.remedy}")

    def check_integrity(self) -> None:
        """Raise StoreUnavailable if the file that a command has only read is damaged. A large one is not read."""
        if self.only_reads and "store" in vars(self) and not self.store.capabilities.backup_tools:
            cast("SavedStore", self.store).check_integrity(most_bytes=CHECKED_BYTES)

    def close(self) -> None:
        """Close the client and the store, if they were opened."""
        if self._warning is not None:
            self._warning.cancel()
        for opened in ("client", "store"):
            if opened in vars(self):
                vars(self)[opened].close()


def complete_queues(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of queues for a shell. It shows no errors: without a store there are no names."""
    session = Session(ctx.meta.get(URL_OF_COMMAND) or ctx.find_root().params["url"])
    session.only_reads = True
    with redirect_stderr(io.StringIO()), suppress(Exception):
        from shardq.base.shard import listed, may_begin_a_name  # noqa: PLC0415 - the help needs none of these

        with closing(session.quiet_store()) as store:
            names = store.list_queues(incomplete) if may_begin_a_name(incomplete) else ()
            return list(listed(names, incomplete))
    return []


queue_argument = click.argument("queue", metavar="QUEUE", shell_complete=complete_queues)

pattern_argument = click.argument("queue", metavar="QUEUE|PATTERN", shell_complete=complete_queues)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _processes(_context: click.Context, _parameter: click.Parameter, text: str) -> int | tuple[int, int]:
    try:
        least, dots, most = text.partition("..")
        return (int(least), int(most)) if dots else int(least)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a number: give one, or the fewest and the most, as 1..8."
        ) from None


processes_option = click.option(
    "--processes",
    "-p",
    metavar="N|MIN..MAX",
    default="1",
    show_default=True,
    callback=_processes,
    help="Number of processes; 1..8: as many of these as due messages need.",
)


def _headers(
    _context: click.Context, _parameter: click.Parameter, texts: Sequence[str]
) -> dict[str, str] | None:
    pairs = [(text, *text.partition("=")) for text in texts]
    for text, name, equals, _ in pairs:
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not a header: give NAME=VALUE.")
    return {name: value for _, name, _, value in pairs} or None


headers_option = click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_headers,
    help="A header. May be repeated.",
)

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")

pattern_yes_option = click.option("--yes", "-y", is_flag=True, help="With a pattern: do not ask.")

codec_option = click.option(
    "--codec",
    type=click.Choice(["bytes", "text", "json", "msgpack"]),
    default="bytes",
    show_default=True,
    help="The codec of the bodies.",
)


def worked_queues(client: Client) -> list[str]:
    """Return the queues that are worked on: those that are listed, and those of subscriptions."""
    from shardq.topics import names  # noqa: PLC0415 - the help needs none of these

    return names.worked_queues(client.queues)


def read_each(
    names: Iterable[str], read: Callable[[str], T], skipped_errors: SkippedErrors | None = None
) -> Iterator[T]:
    """Yield the result of a read of each of the listed queues. One that was deleted since it was listed is left out.

    So is one whose settings cannot be read, as those of a later version, if ``skipped_errors`` takes its error.
    """
    from shardq.errors import QueueNotFound, UnreadableSettings  # noqa: PLC0415 - the help needs none of these

    for name in names:
        try:
            found = read(name)
        except QueueNotFound:
            continue
        except UnreadableSettings as error:
            if skipped_errors is None:
                raise
            skipped_errors(error)
        else:
            yield found


def given_words(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments.

    For ``-``, or without arguments, the first word of each line of stdin; the rest may be no text.
    """
    for argument in arguments or ("-",):
        if argument != "-":
            yield argument
            continue
        for line in sys.stdin.buffer:
            if words := line.removeprefix(BOM_UTF8).split(maxsplit=1):
                yield words[0].decode("utf-8", "replace")
