"""``shardq completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from shardq.cli.command import ExampleCommand
from shardq.cli.printing import print_line

__all__ = ["completion", "script"]


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
