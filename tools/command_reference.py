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

Every command of `shardq`, as its `--help` shows it. `shardq help send` shows one of them. This page is generated:
`make docs`.

## For scripts

Most commands take `--json`. Results go to stdout, notes and errors to stderr. The exit codes are 0 (success),
1 (failure), 2 (wrong usage), 3 (not found) and 4 (the store is unavailable).

With `--json` an error is a JSON object in the last line of stderr, such as that of `shardq describe jbos --json`:

```json
{"code":"queue_not_found","error":"queue 'jbos' does not exist: ...","exit_code":3,"retryable":false}
```

- `code` is the [error's code](api/errors.md), or one of `usage`, `store_not_found`, `failed`, `cancelled`,
  `interrupted`, `file` and `internal`.
- `error` is the text that the command shows without `--json`.
- `retryable` is true when the same command may succeed later.

A command that reads several queues leaves out those whose settings cannot be read. It names them on stderr, shows the
others, and exits with the code of that error.

`shardq work --fail-on-error` exits with code 1 when a handler has failed or a process was replaced, even if a
later delivery of the message succeeded. `shardq work --idle-exit 5s --fail-on-error` is a job for cron or CI.

## Completion

A shell completes commands, options and the names of queues:

```bash
eval "$(shardq completion bash)"  # or zsh; for fish: shardq completion fish | source
```

The names are those of the store that `--url` or `SHARDQ_URL` names. Without a store there are none.
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
