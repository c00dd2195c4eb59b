"""Queues as a file declares them: their differences from the queues of a store, and applying them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from shardq.base.clock import read_duration
from shardq.base.shard import INTERNAL, check_queue_name
from shardq.base.texts import kind_of, shown
from shardq.cli.printing import value_text
from shardq.client import Client
from shardq.core.settings import QueueSettings
from shardq.errors import InvalidName, InvalidSetting, QueueExists, QueueNotFound

__all__ = ["apply_difference", "change_text", "differences", "read_declarations", "settings_difference"]

_TABLES = ("defaults", "queues")
_HINTS = get_type_hints(QueueSettings)


class Difference(msgspec.Struct, frozen=True):
    """The change that a queue needs to be as declared."""

    queue: str
    action: Literal["create", "alter"]
    settings: dict[str, Any]  # as they are to be
    present: dict[str, Any] = {}  # the same settings as they are; empty for a queue to be created


def read_declarations(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read the declared settings of each queue from a TOML file, by the queue's name.

    A table ``[queues.NAME]`` declares a queue, and ``[defaults]`` has settings for all that do not give their own.
    Durations are seconds or have units, as on the command line; ``"none"`` leaves an optional setting out. Raises
    InvalidSetting or InvalidName, which name the file and the queue; and OSError.
    """
    try:
        document = tomllib.loads(Path(path).read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path} cannot be read as TOML: {error}") from error
    for name in document:
        if name not in _TABLES:
            raise InvalidSetting(
                f"{path}: {name!r} declares nothing: give queues as [queues.NAME], and settings of all as [defaults]"
            )
    defaults = _settings(_table(path, "defaults", document.get("defaults", {})), f"{path}: [defaults]")
    declared = {}
    for name, given in _table(path, "queues", document.get("queues", {})).items():
        place = f"{path}: queue {name!r}"
        _check_name(name, place)
        declared[name] = defaults | _settings(_table(path, f"queues.{name}", given), place)
        _checked(QueueSettings(), declared[name], place)
    return _in_order(declared, path)


def differences(client: Client, declared: Mapping[str, Mapping[str, Any]]) -> list[Difference]:
    """Return the differences from the queues of a store, in the order of the declarations. It changes nothing.

    A setting that is not declared is left as it is, and so is a queue that is not declared.
    """
    found = []
    for name, settings in declared.items():
        try:
            present = client.queue(name).settings
        except QueueNotFound:
            found.append(Difference(name, "create", dict(settings)))
            continue
        if (difference := settings_difference(name, present, settings)) is not None:
            found.append(difference)
    return found


def settings_difference(queue: str, present: QueueSettings, wanted: Mapping[str, Any]) -> Difference | None:
    """Return which of the wanted settings a queue does not have; None when it has all. Raises InvalidSetting."""
    changed = _checked(present, wanted, f"queue {queue!r}")
    new = {
        name: getattr(changed, name) for name in wanted if getattr(changed, name) != getattr(present, name)
    }
    if not new:
        return None
    return Difference(queue, "alter", new, {name: getattr(present, name) for name in new})


def change_text(difference: Difference) -> str:
    """Return the settings in words: ``shards 8 -> 20, retention none``."""
    return ", ".join(
        f"{name} {value_text(difference.present[name])} -> {value_text(value)}"
        if name in difference.present
        else f"{name} {value_text(value)}"
        for name, value in difference.settings.items()
    )


def apply_difference(client: Client, difference: Difference) -> None:
    """Create or alter the queue. Errors are those of ``create_queue`` and ``alter``; it can be repeated."""
    settings: Any = difference.settings
    if difference.action == "create":
        with suppress(QueueExists):  # created by another program since then
            client.create_queue(difference.queue, **settings)
            return
    client.queue(difference.queue).alter(**settings)


def _table(path: str | Path, name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidSetting(f"{path}: {name} is {kind_of(value)}: give a table, such as [{name}]")
    return value


def _check_name(name: str, place: str) -> None:
    if name.startswith(INTERNAL):
        raise InvalidName(f"{place} is one of those that shardq makes for itself: choose another name")
    try:
        check_queue_name(name)
    except InvalidName as error:
        raise InvalidName(f"{place}: {error}") from error


def _settings(given: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {name: _value(name, value, place) for name, value in _named(given, place)}


def _named(given: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    for key, value in given.items():
        name = key.replace("-", "_")  # as the options of the commands are written
        if name not in _HINTS:
            raise InvalidSetting(f"{place}: {shown(key)} is not a setting: use one of {', '.join(_HINTS)}")
        yield name, value


def _value(name: str, value: object, place: str) -> object:
    """Return a value as the setting has it: TOML has neither durations nor None."""
    kinds = get_args(_HINTS[name]) or (_HINTS[name],)
    if type(None) in kinds and value == "none":
        return None
    if float in kinds and isinstance(value, str):
        try:
            return read_duration(value)
        except ValueError as error:
            raise InvalidSetting(f"{place}: {name}: {error}") from error
    return float(value) if float in kinds and type(value) is int else value


def _checked(settings: QueueSettings, changes: Mapping[str, Any], place: str) -> QueueSettings:
    try:
        return settings.change(changes)
    except InvalidSetting as error:
        raise InvalidSetting(f"{place}: {error}") from error


def _in_order(declared: Mapping[str, dict[str, Any]], path: str | Path) -> dict[str, dict[str, Any]]:
    """Sort dead-letter queues before their queues: creating a queue would create its dead-letter queue."""
    before = {name: _dead_letter_queues(name, settings, declared) for name, settings in declared.items()}
    try:
        return {name: declared[name] for name in TopologicalSorter(before).static_order()}
    except CycleError as error:
        dead_letter_chain = " -> ".join(reversed(error.args[1]))
        raise InvalidSetting(
            f"{path}: dead letters would go round for ever, {dead_letter_chain}: name another dead_letter_queue"
        ) from error


def _dead_letter_queues(name: str, settings: Mapping[str, Any], declared: Mapping[str, Any]) -> Sequence[str]:
    target = settings.get("dead_letter_queue") or f"{name}.dead"
    return [target] if target in declared else []
