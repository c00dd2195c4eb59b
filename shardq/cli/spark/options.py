"""What the commands of ``shardq spark`` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from shardq.cli.printing import note, print_json

__all__ = ["checkpoint_option", "master_option", "option_pairs", "pairs_of", "show"]

master_option = click.option(
    "--master", metavar="URL", help="Spark's master. Default: spark-submit's, or all cores of this computer."
)

checkpoint_option = click.option(
    "--checkpoint",
    metavar="DIR",
    required=True,
    help="Folder for the progress of the stream. The same folder continues it.",
)


def option_pairs(flag: str, text: str) -> Callable[[Any], Any]:
    """An option that takes NAME=VALUE and can be repeated."""
    return click.option(flag, metavar="NAME=VALUE", multiple=True, help=f"{text} May be repeated.")


def pairs_of(texts: Sequence[str], flag: str) -> dict[str, str]:
    """The values of such an option by name."""
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{text!r} is no option: give NAME=VALUE.", param_hint=flag)
        pairs[name] = value
    return pairs


def show(result: Mapping[str, object], *, as_json: bool) -> None:
    """Show the result as JSON on stdout, or as a line on stderr."""
    if as_json:
        print_json(result)
    else:
        note(", ".join(f"{name.replace('_', ' ')}: {_text(value)}" for name, value in result.items()))


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
