"""``shardq``: the group of all commands. It loads a command when it is called, and ends all in the same way."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from shardq.cli.command import URL_OF_COMMAND, ExampleGroup, Session
from shardq.cli.command_table import COMMANDS, SECTIONS

__all__ = ["main"]

DEFAULT_URL = "sqlite:///shardq.db"


class Ended(Exception):
    """Carries an end that is not an error past click, which would handle it in its own way."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Program(ExampleGroup):
    """A group whose commands are in a table. Each is imported when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names by the table: to load all commands takes a second, and the extras of all."""
        found = [
            CompletionItem(name, help=entry.summary)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return sorted(found, key=attrgetter("value")) + click.Command.shell_complete(self, ctx, incomplete)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command, and let it take ``--url`` too. Raises InvalidSetting if its extra is missing."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if not entry.extra:
                raise
            if ctx.resilient_parsing:  # a shell completes: an error would be written into the line
                return None
            from shardq.errors import InvalidSetting  # noqa: PLC0415 - the help starts without the errors

            missing = (error.name or "").partition(".")[0]
            raise InvalidSetting(
                f"`shardq {cmd_name}` needs {missing}: pip install 'shardq[{entry.extra}]'"
            ) from error
        accept_url(command)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section. The texts are those of the table: loading all commands would take a second."""
        for section in SECTIONS:
            rows = [(name, entry.summary) for name, entry in COMMANDS.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; return its exit code if it left something out. Click does not see Ctrl-C and a closed pipe."""
        try:
            result = super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError) as error:
            raise Ended(error) from error
        return ctx.obj.skipped_errors.exit_code or result

    def main(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> Any:
        """Run a command and exit with its code. An error is one line on stderr, never a traceback.

        With ``--json`` anywhere in the command, that line is a JSON object, also for an error in its options.
        """
        options["standalone_mode"] = False
        given = takewhile(lambda each: each != "--", sys.argv[1:] if args is None else args)
        as_json = "--json" in given
        _open_what_is_closed()
        _write_utf_8()
        try:
            result = super().main(args, *others, **options)
            code = result if isinstance(result, int) else 0
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:
            from shardq.cli.failures import end  # noqa: PLC0415 - the help starts without the errors

            code = end(error.reason if isinstance(error, Ended) else error, as_json=as_json)
        try:
            sys.stderr.flush()
        except OSError:
            from shardq.base.log import drop_unwritten  # noqa: PLC0415 - the help starts without logging

            drop_unwritten()  # or Python ends with another exit code
        sys.exit(code)


def _open_what_is_closed() -> None:
    """Give each standard stream that is closed to the null device; to use it raises OSError, unless it is stderr.

    Else Python has no stream there at all, and the next file to be opened would be taken for it.
    """
    for name, mode, flags in (
        ("stdin", "r", os.O_WRONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))


def _write_utf_8() -> None:
    """Write UTF-8 to stdout in any locale, as bytes are written to it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def accept_url(command: click.Command) -> None:
    """Let a command and its subcommands take ``--url``.

    A command whose option has its own default keeps it. It is given the URL before its name.
    """
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            accept_url(inner)
        return
    for parameter in command.params:
        if parameter.name == "url":
            parameter.default = _given_before
            return
    command.params.append(_option())


def _option() -> click.Option:
    return click.Option(
        ["--url"],
        expose_value=False,
        callback=_take,
        help="The URL of the store. It may also stand before the command.",
    )


def _take(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    session = ctx.find_object(Session)
    if value is not None and session is not None:
        session.url = value
    elif value is not None:  # a shell completes the command, which is not run
        ctx.meta[URL_OF_COMMAND] = value


def _given_before() -> str | None:
    """Return the URL of ``shardq --url URL command``. None if it is the default or from the environment."""
    group = click.get_current_context().parent
    if group is None or group.get_parameter_source("url") is not ParameterSource.COMMANDLINE:
        return None
    return str(group.params["url"])


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    example="shardq create orders\nshardq send orders hello\nshardq receive orders",
)
@click.option(
    "--url",
    envvar="SHARDQ_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="The URL of the store, such as sqlite:///FILE.",
)
@click.version_option(package_name="shardq", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, url: str) -> None:
    """Send, receive and operate the queues of a message store.

    Exit codes: 0 done, 1 failure, 2 wrong usage, 3 not found, 4 store unavailable.
    """
    source = ctx.get_parameter_source("url")
    if source is ParameterSource.DEFAULT:
        url = os.environ.get("SHARDQ_URL", url)  # one that is empty is not a default
    session = Session(url, given=source is ParameterSource.COMMANDLINE)
    ctx.obj = session
    ctx.call_on_close(session.close)
