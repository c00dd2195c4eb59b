"""The group of all commands: loads them when they are called, and ends every one of them the same way."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from shardq.cli.command_table import COMMANDS, SECTIONS
from shardq.cli.example import ExampleGroup
from shardq.cli.failures import end
from shardq.cli.url_option import accept_url

__all__ = ["Program"]


class Ended(Exception):
    """Carries an end that is no error past click."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Program(ExampleGroup):
    """A click group whose commands are in a table and imported one by one."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; it takes ``--url`` too."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if not entry.extra:
                raise
            raise click.ClickException(
                f"`shardq {cmd_name}` needs {error.name}: pip install 'shardq[{entry.extra}]'"
            ) from error
        accept_url(command)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, out of the table: loading them all would take a second."""
        for section in SECTIONS:
            rows = [(name, entry.summary) for name, entry in COMMANDS.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; click would answer Ctrl-C and a closed pipe itself, in its own way."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError) as error:
            raise Ended(error) from error

    def main(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> Any:
        """Run a command and exit with its code: one line on stderr for an error, never a traceback."""
        options["standalone_mode"] = False
        try:
            result = super().main(args, *others, **options)
            code = result if isinstance(result, int) else 0
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:
            code = end(error.reason if isinstance(error, Ended) else error)
        sys.exit(code)
