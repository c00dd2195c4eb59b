"""``shardq help`` and ``shardq completion``."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import get_completion_class

from shardq.cli.command import ExampleCommand
from shardq.cli.command_table import COMMANDS
from shardq.cli.printing import print_line

__all__ = ["completion", "script", "show_help"]


def _complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in COMMANDS if name.startswith(incomplete)]


@click.command("help", cls=ExampleCommand, example="shardq help send\nshardq help schedule create")
@click.argument("words", metavar="[COMMAND]...", nargs=-1, shell_complete=_complete)
@click.pass_context
def show_help(ctx: click.Context, words: Sequence[str]) -> None:
    """Show the help of a command, as --help does."""
    print_line(help_text(ctx.find_root(), words))


def help_text(root: click.Context, words: Sequence[str]) -> str:
    """Return the help of the command that some words name. Raises UsageError for words that name none."""
    for word in words:
        if not isinstance(root.command, click.Group):
            raise click.UsageError(f"`{root.command_path}` has no command {word!r}.", root)
        name, command, _ = root.command.resolve_command(root, [word])
        assert command is not None
        root = click.Context(command, parent=root, info_name=name)
    return root.get_help()


@click.command(cls=ExampleCommand, example='eval "$(shardq completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    print_line(script(ctx.find_root().command, shell))


def script(program: click.Command, shell: str) -> str:
    """Return the script that lets the shell complete the words of the program."""
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(program, {}, "shardq", "_SHARDQ_COMPLETE").source()
