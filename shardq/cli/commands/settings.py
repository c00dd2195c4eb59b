"""``shardq create`` and ``shardq alter``, with an option for each field of QueueSettings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from shardq.base.patterns import is_pattern
from shardq.base.shard import INTERNAL
from shardq.cli.command import (
    ExampleCommand,
    Session,
    json_option,
    pattern_argument,
    pattern_yes_option,
    queue_argument,
    yes_option,
)
from shardq.cli.declarations import (
    apply_difference,
    change_text,
    differences,
    read_declarations,
)
from shardq.cli.many_queues import Operation, changes_of, on_each
from shardq.cli.printing import many, note, print_json, print_line
from shardq.cli.times import duration
from shardq.client.queue import Queue
from shardq.core.settings import QueueSettings
from shardq.errors import InvalidName, InvalidSetting, QueueExists

__all__ = ["alter", "apply", "create"]

_F = TypeVar("_F", bound=Callable[..., Any])
# From Python 3.13 on docstrings have no indentation.
_METHOD = re.compile(r":meth:`~shardq\.Queue\.(\w+)`")
_TERM = re.compile(r"^( *)(``\w+``(?:, ``\w+``)*)\n((?:\1    .+(?:\n|\Z))+)", re.MULTILINE)


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a whole number") from None


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
    client, outcome = ctx.ensure_object(Session).client, "was created"
    try:
        found = client.create_queue(queue, **chosen)
    except QueueExists:
        if not exist_ok:
            raise
        found, outcome = client.create_queue(queue, exist_ok=True), "exists"
    if others := _others(found.settings, chosen):
        raise InvalidSetting(
            f"queue {queue!r} exists with other settings, and these were not applied: {', '.join(others)}; "
            f"`shardq alter {queue}` changes them"
        )
    note(f"queue {queue} {outcome}")


def _others(settings: QueueSettings, chosen: Mapping[str, object]) -> list[str]:
    """Describe the chosen settings that the queue does not have."""
    return [
        f"{name.replace('_', '-')} {value} (the queue has {getattr(settings, name)})"
        for name, value in chosen.items()
        if getattr(settings, name) != value
    ]


@click.command(
    cls=ExampleCommand,
    example="shardq alter orders --shards 40 --max-deliveries none\nshardq alter 'mail/*' --retention 14d",
)
@pattern_argument
@pattern_yes_option
@settings_options(defaults=False)
@click.pass_context
def alter(ctx: click.Context, /, queue: str, yes: bool, **_: object) -> None:
    """Change settings of a queue in use.

    Omitted settings are unchanged; `shardq describe` shows all. Every client follows within about a
    second. If the layout changes, new messages go to the new shards. Messages in the old shards are still delivered.

    A pattern such as 'mail/*' stands for each queue that it matches. The changes are shown first, and confirmed.
    """
    changes = chosen_settings(ctx)
    if not changes:
        raise click.UsageError("Nothing to change: give at least one setting.", ctx)
    session = ctx.ensure_object(Session)
    if is_pattern(queue):
        operation = Operation(
            "Alter", "altered", partial(changes_of, wanted=changes), _altering(changes), _altered
        )
        on_each(session, queue, operation, yes=yes, as_json=False)
        return
    session.queue(queue).alter(**changes)
    note(_altered(queue, changes))


def _altering(changes: dict[str, Any]) -> Callable[[Queue], Mapping[str, Any]]:
    def alter_one(queue: Queue) -> Mapping[str, Any]:
        queue.alter(**changes)
        return changes

    return alter_one


def _altered(queue: str, changes: Mapping[str, Any]) -> str:
    return f"queue {queue} has changed: " + ", ".join(changes)


@click.command(
    cls=ExampleCommand, example="shardq apply queues.toml --dry-run\nshardq apply queues.toml --yes"
)
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@yes_option
@json_option
@click.pass_obj
def apply(session: Session, file: Path, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Create and alter queues as a TOML file declares them.

    A table [queues.NAME] declares a queue with its settings, and [defaults] has settings for all of them. Shows the
    differences, then asks. A setting or a queue that is not declared is left as it is: nothing is deleted.
    """
    found = differences(session.client, read_declarations(file))
    for each in () if as_json else found:
        sign = "+" if each.action == "create" else "~"
        print_line(f"{sign} {each.queue}: {change_text(each) or 'default settings'}")
    if found and not (dry_run or yes):
        click.confirm(f"Create or alter {many(len(found), 'queue')}?", abort=True, err=True)
    for each in () if dry_run else found:
        apply_difference(session.client, each)
        note(f"queue {each.queue} was {'created' if each.action == 'create' else 'altered'}")
    if as_json:
        print_json({"differences": found, "applied": not dry_run})
    elif not found:
        note(f"all queues are as {file} declares them")
