"""``--url``, before and after the name of a command."""

from __future__ import annotations

import click
from click.core import ParameterSource

from shardq.cli.session import Session

__all__ = ["accept_url"]


def accept_url(command: click.Command) -> None:
    """Let a command, and its own commands, take ``--url``.

    One that has an option of that name, with a default of its own, keeps it: it is given what stands before its name.
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
        ["--url"], expose_value=False, callback=_take, help="The store, as before the command's name."
    )


def _take(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    session = ctx.find_object(Session)
    if value is not None and session is not None:
        session.url = value


def _given_before() -> str | None:
    """The store of ``shardq --url ... command``; None when it is the default of ``shardq``, or of the environment."""
    group = click.get_current_context().parent
    if group is None or group.get_parameter_source("url") is not ParameterSource.COMMANDLINE:
        return None
    return str(group.params["url"])
