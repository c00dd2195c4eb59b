"""The settings of a queue as options, made from the fields of QueueSettings and their description."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_type_hints

import click

from shardq.cli.duration import duration
from shardq.settings import QueueSettings

__all__ = ["chosen_settings", "settings_options"]

_F = TypeVar("_F", bound=Callable[..., Any])
_TERM = re.compile(r"^    (``\w+``(?:, ``\w+``)*)\n((?:        .*\n)+)", re.MULTILINE)


_Reader = Callable[[str], Any]
_READERS: dict[type, _Reader] = {int: int, float: duration, str: str}


def settings_options(command: _F) -> _F:
    """Give a command one option for each setting."""
    help_texts = _help_texts()
    for name, hint in reversed(get_type_hints(QueueSettings).items()):
        command = _option(name, hint, help_texts.get(name, ""))(command)
    return command


def chosen_settings(ctx: click.Context) -> dict[str, Any]:
    """The settings that the user has given."""
    given = (click.core.ParameterSource.COMMANDLINE,)
    return {
        name: ctx.params[name]
        for name in QueueSettings.__struct_fields__
        if ctx.get_parameter_source(name) in given
    }


def _option(name: str, hint: Any, text: str) -> Callable[[_F], _F]:
    flag = "--" + name.replace("_", "-")
    if hint is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", default=None, help=text)
    optional = type(None) in get_args(hint)
    plain = next(iter(get_args(hint))) if optional else hint
    reader = _or_none(_READERS[plain]) if optional else _READERS[plain]
    return click.option(
        flag,
        type=reader,
        default=None,
        metavar=_metavar(plain, optional),
        help=f"{text}  [{_default(name)}]".strip(),
    )


def _or_none(reader: _Reader) -> _Reader:
    """Read a value, or the word ``none``."""
    return lambda text: None if text.lower() == "none" else reader(text)


def _metavar(plain: type, optional: bool) -> str:
    return {int: "NUMBER", float: "DURATION", str: "NAME"}[plain] + ("|none" if optional else "")


def _default(name: str) -> str:
    value = getattr(QueueSettings(), name)
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _help_texts() -> dict[str, str]:
    """The description of each setting, out of the docstring of QueueSettings."""
    texts = {}
    for names, text in _TERM.findall(QueueSettings.__doc__ or ""):
        for name in re.findall(r"\w+", names):
            texts[name] = " ".join(
                text.replace("``", "")
                .replace("None:", "none:")
                .replace(":meth:`~shardq.Queue.pause`", "pause")
                .split()
            )
    return texts
