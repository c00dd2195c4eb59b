"""Opening a store by its URL.

Shardq's own stores are in a table. Stores of other packages are found by their URL's scheme among the entry points of
the group ``shardq.stores``. Those are read for other schemes only, as that is slow. An entry point is a function that
takes the URL and a clock and returns a :class:`~shardq.storage.store.Store`; it makes no connection yet.

The option ``signals`` of any store's URL is the URL of a line for signals, which the store itself is not given.
Lines are found in the same way, in a table or in the group ``shardq.signals``. Their functions take the URL and return
a :class:`~shardq.storage.signals.publisher.OpenLine`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from shardq.clock import Clock
from shardq.errors import InvalidSetting
from shardq.storage.store import Store
from shardq.wording import shown

__all__ = ["check_between_processes", "open_store"]

_STORES, _LINES = "shardq.stores", "shardq.signals"
_OWN = {
    _STORES: {
        "cassandra": "shardq.storage.cassandra.url:open_cassandra",
        "memory": "shardq.storage.sqlite.memory:open_memory",
        "mongodb": "shardq.storage.mongodb.url:open_mongodb",
        "mongodb+srv": "shardq.storage.mongodb.url:open_mongodb",
        "sqlite": "shardq.storage.sqlite.url:open_sqlite",
    },
    _LINES: {
        "redis": "shardq.storage.redis.url:open_redis",
        "rediss": "shardq.storage.redis.url:open_redis",
    },
}
_OF_ONE_PROCESS = {"memory"}
_ON_A_NETWORK = {"cassandra", "mongodb", "mongodb+srv"}
_OPTION = "signals="
_LEAST_TO_CONNECT, _MOST_TO_CONNECT = 2.0, 10.0  # seconds; a busy server needs the least, too


def open_store(url: str, clock: Clock, *, retry_seconds: float | None = None) -> Store:
    """Return the store that a URL names; raises InvalidSetting when there is none for it.

    With ``retry_seconds`` an attempt to connect takes at most half of them, but no less than 2 and no more than 10
    seconds, unless the URL has timeouts. So a call to a store that is unreachable fails soon after its repetitions end.
    """
    own, of_line = _split(url)
    scheme = _scheme(own)
    if wrong := next((each for each in own if not each.isprintable() and each.isascii()), None):
        raise InvalidSetting(
            f"the URL of the store has the character {wrong!r}: leave it out, or write %{ord(wrong):02X} in its place"
        )
    opener: Callable[..., Store] = _load(_STORES, scheme)
    limits = {}
    if retry_seconds is not None and scheme in _ON_A_NETWORK:
        limits["connect_seconds"] = min(max(retry_seconds / 2, _LEAST_TO_CONNECT), _MOST_TO_CONNECT)
    store = opener(own, clock, **limits)
    return store if of_line is None else _signalled(store, of_line)


def check_between_processes(url: str, who: str) -> None:
    """Raise InvalidSetting when the URL names a store that other processes cannot open, or is none."""
    if _scheme(_split(url)[0]) in _OF_ONE_PROCESS:
        raise InvalidSetting(
            f"{shown(url)} is of one process, and {who}: name a store that others can open, such as "
            "'sqlite:///queue.db'"
        )


def _signalled(store: Store, url: str) -> Store:
    from shardq.storage.wrapped_store import SignalledStore  # noqa: PLC0415 - needed with signals= only

    opener = _load(_LINES, url.partition("://")[0] if "://" in url else "")
    return SignalledStore(store, opener(url))


def _split(url: str) -> tuple[str, str | None]:
    """Return the URL for the store, and that of its line, as it stands there or quoted whole."""
    place, mark, query = url.partition("?") if isinstance(url, str) else (url, "", "")
    options = query.split("&") if mark else []
    given = [option.removeprefix(_OPTION) for option in options if option.startswith(_OPTION)]
    if not given:
        return url, None
    others = [option for option in options if not option.startswith(_OPTION)]
    if len(given) > 1 or "#" in given[0] or any("@" in option for option in others):
        raise InvalidSetting(
            "the option signals cannot be read: give one, and in its user and password write %26 for '&', %23 for '#', "
            "%3F for '?'"
        )
    line = given[0] if "://" in given[0] else unquote(given[0])
    return place + ("?" if others else "") + "&".join(others), line


def _load(group: str, scheme: str) -> Callable[..., Any]:
    target = _OWN[group].get(scheme) or _of_other_packages(group).get(scheme)
    if target is None:
        what = "URL scheme" if group == _STORES else "URL scheme of the option signals,"
        known = ", ".join(sorted({*_OWN[group], *_of_other_packages(group)}))
        raise InvalidSetting(f"{what} {shown(scheme)} is unknown: use one of {known}")
    module, _, name = target.partition(":")
    try:
        opener: Callable[..., Any] = getattr(import_module(module), name)
    except ImportError as error:
        extra = module.split(".")[-2]  # called as the folder in which the driver is used
        raise InvalidSetting(
            f"the driver for {scheme}:// is not installed ({error}): pip install 'shardq[{extra}]'"
        ) from error
    return opener


def _of_other_packages(group: str) -> dict[str, str]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and mostly not needed

    return {point.name: point.value for point in entry_points(group=group)}


def _scheme(url: object) -> str:
    if not isinstance(url, str) or "://" not in url:
        text = shown(url)
        is_cut = isinstance(url, str | bytes) and text.endswith("...")
        if "@" in text or is_cut:  # there may be a password before an @
            text = "what was given"
        raise InvalidSetting(f"{text} is no URL of a store: give one such as 'sqlite:///queue.db'")
    try:
        return urlsplit(url).scheme
    except ValueError as error:
        raise InvalidSetting(
            f"the URL of the store cannot be read ({error}): in user and password write %5B for '[', %5D for ']'"
        ) from error
