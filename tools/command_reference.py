"""Writes docs/commands.md from the commands themselves; with --check it only says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from shardq.cli.command_table import COMMANDS, SECTIONS
from shardq.cli.main import main

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
WIDTH: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}
HEAD = """\
# Commands

Every command of `shardq`, as its `--help` says it. This page is generated: `make docs`.
"""


def reference() -> str:
    """The page as it should be."""
    context = click.Context(main, info_name="shardq", **{**main.context_settings, **WIDTH})
    parts = [HEAD, _block(main.get_help(context))]
    for section in SECTIONS:
        parts.append(f"## {section}\n")
        parts += [_command(context, name) for name, entry in COMMANDS.items() if entry.section == section]
    return "\n".join(parts)


def _command(parent: click.Context, name: str) -> str:
    command = main.get_command(parent, name)
    assert command is not None
    context = click.Context(command, parent=parent, info_name=name, **WIDTH)
    text = f"### {name}\n\n{_block(command.get_help(context))}"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            text += "\n" + _child(context, command, child)
    return text


def _child(parent: click.Context, group: click.Group, name: str) -> str:
    command = group.get_command(parent, name)
    assert command is not None
    context = click.Context(command, parent=parent, info_name=name, **WIDTH)
    return _block(command.get_help(context))


def _block(text: str) -> str:
    return "```text\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("docs/commands.md is not up to date: make docs" if PAGE.read_text() != reference() else 0)
    PAGE.write_text(reference())
