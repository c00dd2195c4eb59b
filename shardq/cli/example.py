"""Commands that show an example in their help."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import click

__all__ = ["ExampleCommand", "ExampleGroup", "write_example"]


class ExampleCommand(click.Command):
    """A command with an example: one or more lines as one types them."""

    def __init__(self, *arguments: Any, example: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example at the end of the help."""
        super().format_epilog(ctx, formatter)
        write_example(self.example, formatter)


class ExampleGroup(click.Group):
    """A group with an example, and with commands that have one."""

    command_class = ExampleCommand

    def __init__(self, *arguments: Any, example: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.example = example

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; a name that is none is answered with the nearest that is one."""
        near = get_close_matches(args[0], self.list_commands(ctx), n=1)
        if near and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example at the end of the help."""
        super().format_epilog(ctx, formatter)
        write_example(self.example, formatter)


def write_example(example: str, formatter: click.HelpFormatter) -> None:
    """Write the lines of an example, none of them wrapped."""
    with formatter.section("Example"):
        for line in example.splitlines():
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
