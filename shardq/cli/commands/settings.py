"""``shardq create`` and ``shardq alter``, with an option for each field of QueueSettings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from shardq.base.shard import INTERNAL
from shardq.cli.command import ExampleCommand, Session, queue_argument
from shardq.cli.printing import note
from shardq.cli.times import duration
from shardq.errors import InvalidName, InvalidSetting, QueueExists
from shardq.settings import QueueSettings

__all__ = ["alter", "chosen_settings", "create", "settings_options"]

_F = TypeVar("_F", bound=Callable[..., Any])
# From Python 3.13 on docstrings have no indentation.
_METHOD = re.compile(r":meth:`~shardq\.Queue\.(\w+)`")
_TERM = re.compile(r"^( *)(``\w+``(?:, ``\w+``)*)\n((?:\1    .+(?:\n|\Z))+)", re.MULTILINE)


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no whole number") from None


_Reader = Callable[[str], Any]
_READERS: dict[type, _Reader] = {int: _whole_number, float: duration, str: str}


def settings_options(*, defaults: bool) -> Callable[[_F], _F]:
    """Give a command one option for each setting, with its default where a setting left out has that."""

    def give(command: _F) -> _F:
        help_texts = _help_texts()
        for name, hint in reversed(get_type_hints(QueueSettings).items()):
            text = help_texts.get(name, "")
            shown = f"{text}  [{_default(name)}]" if defaults and hint is not bool else text
            command = _option(name, hint, shown)(command)
        return command

    return give


def chosen_settings(ctx: click.Context) -> dict[str, Any]:
    """Return the settings that the user gave."""
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
    if get_origin(hint) is Literal:
        return click.option(flag, type=click.Choice(get_args(hint)), default=None, help=text)
    optional = type(None) in get_args(hint)
    plain = next(iter(get_args(hint))) if optional else hint
    reader = _or_none(_READERS[plain]) if optional else _READERS[plain]
    return click.option(
        flag,
        type=reader,
        default=None,
        metavar=_metavar(name, plain, optional),
        help=text,
    )


def _or_none(reader: _Reader) -> _Reader:
    """Read a value, or the word ``none``."""
    return lambda text: None if text.lower() == "none" else reader(text)


def _metavar(name: str, plain: type, optional: bool) -> str:
    kind = {int: "NUMBER", float: "DURATION", str: "NAME"}[plain]
    return ("RATE" if name == "rate_limit" else kind) + ("|none" if optional else "")


def _default(name: str) -> str:
    value = getattr(QueueSettings(), name)
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _help_texts() -> dict[str, str]:
    """Read the description of each setting from the docstring of QueueSettings."""
    texts = {}
    for _, names, text in _TERM.findall(QueueSettings.__doc__ or ""):
        for name in re.findall(r"\w+", names):
            texts[name] = " ".join(
                _METHOD.sub(r"`shardq \1`", text).replace("``", "").replace("None:", "none:").split()
            )
    return texts


@click.command(
    cls=ExampleCommand, example="shardq create orders --shards 20 --visibility-timeout 2m --retention 14d"
)
@queue_argument
@click.option(
    "--exist-ok",
    is_flag=True,
    help="Accept a queue that exists. It is not changed; fail if it has other settings than those given.",
)
@settings_options(defaults=True)
@click.pass_context
def create(ctx: click.Context, /, queue: str, exist_ok: bool, **_: object) -> None:
    """Create a queue and its dead-letter queue.

    Applies the store's schema first if it is missing. Durations are in seconds, or have a unit: 500ms, 30s, 5m, 2h,
    7d. Write none to leave an optional setting out.
    """
    if queue.startswith(INTERNAL):
        raise InvalidName(
            f"queue name {queue!r} is one of those that shardq makes for itself: choose another"
        )
    chosen = chosen_settings(ctx)
    client = ctx.ensure_object(Session).client
    try:
        found = client.create_queue(queue, **chosen)
    except QueueExists:
        if not exist_ok:
            raise
        found = client.create_queue(queue, exist_ok=True)
    if others := _others(found.settings, chosen):
        raise InvalidSetting(
            f"queue {queue!r} is there with other settings, and these were not applied: {', '.join(others)}; "
            f"`shardq alter {queue}` changes them"
        )
    note(f"queue {queue} is there")


def _others(settings: QueueSettings, chosen: Mapping[str, object]) -> list[str]:
    """Describe the chosen settings that the queue does not have."""
    return [
        f"{name.replace('_', '-')} {value} (there it is {getattr(settings, name)})"
        for name, value in chosen.items()
        if getattr(settings, name) != value
    ]


@click.command(cls=ExampleCommand, example="shardq alter orders --shards 40 --max-deliveries none")
@queue_argument
@settings_options(defaults=False)
@click.pass_context
def alter(ctx: click.Context, /, queue: str, **_: object) -> None:
    """Change settings of a queue in use.

    Omitted settings are unchanged; `shardq describe` shows all. Every client follows within about a
    second. If the layout changes, new messages go to the new shards. Messages in the old shards are still delivered.
    """
    changes = chosen_settings(ctx)
    if not changes:
        raise click.UsageError("Nothing to change: give at least one setting.", ctx)
    ctx.ensure_object(Session).queue(queue).alter(**changes)
    note(f"queue {queue} has changed: " + ", ".join(changes))
