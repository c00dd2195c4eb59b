"""``--url``, before and after the name of a command."""

from __future__ import annotations

import click

from shardq.cli.session import Session

__all__ = ["accept_url"]


def accept_url(command: click.Command) -> None:
    """Let a command, and its own commands, take ``--url``; one that has such an option keeps it."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            accept_url(inner)
    elif not any(parameter.name == "url" for parameter in command.params):
        command.params.append(_option())


def _option() -> click.Option:
    return click.Option(
        ["--url"], expose_value=False, callback=_take, help="The store, as before the command's name."
    )


def _take(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    session = ctx.find_object(Session)
    if value is not None and session is not None:
        session.url = value
