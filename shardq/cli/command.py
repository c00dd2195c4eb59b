"""What the commands share: the connection, examples in their help, and arguments and options."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import click

from shardq.client import Client, connect
from shardq.queue import Queue

__all__ = [
    "ExampleCommand",
    "ExampleGroup",
    "Session",
    "codec_option",
    "given_words",
    "json_option",
    "queue_argument",
    "write_example",
    "yes_option",
]


class ExampleCommand(click.Command):
    """A command whose help ends with an example: one or more lines to type."""

    def __init__(self, *arguments: Any, example: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example at the end of the help."""
        super().format_epilog(ctx, formatter)
        write_example(self.example, formatter)


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
        near = get_close_matches(args[0], self.list_commands(ctx), n=1)
        if near and self.get_command(ctx, args[0]) is None:
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

    def __init__(self, url: str) -> None:
        self.url = url

    @cached_property
    def client(self) -> Client:
        """The connection."""
        return connect(self.url)

    def queue(self, name: str) -> Queue:
        """An existing queue."""
        return self.client.queue(name)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if "client" in vars(self):
            self.client.close()


queue_argument = click.argument("queue", metavar="QUEUE")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")

codec_option = click.option(
    "--codec",
    type=click.Choice(["bytes", "text", "json", "msgpack"]),
    default="bytes",
    show_default=True,
    help="The codec of the bodies.",
)


def given_words(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments. For ``-``, or without arguments, the first word of each line of stdin."""
    for argument in arguments or ("-",):
        if argument != "-":
            yield argument
            continue
        for line in sys.stdin:
            if words := line.split(maxsplit=1):
                yield words[0]
