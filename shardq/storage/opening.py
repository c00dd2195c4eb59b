"""Opening a store by its URL.

Stores are found by their URL's scheme among the entry points of the group ``shardq.stores``, so a store of
another package needs no change here. An entry point is a function that takes the URL and a clock and returns
a :class:`~shardq.storage.store.Store`; it makes no connection yet.

The option ``signals`` of any store's URL is the URL of a line for signals, which the store itself is not given.
Lines are found in the same way, in the group ``shardq.signals``; their functions take the URL and return a
:class:`~shardq.storage.signals.line.OpenLine`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any
from urllib.parse import unquote, urlsplit

from shardq.clock import Clock
from shardq.errors import InvalidSetting
from shardq.storage.signals.line import OpenLine
from shardq.storage.store import Store
from shardq.storage.wrapped_store import SignalledStore

__all__ = ["open_store"]

_STORES, _LINES = "shardq.stores", "shardq.signals"
_OPTION = "signals="


def open_store(url: str, clock: Clock) -> Store:
    """The store that a URL names; raises InvalidSetting when there is none for it."""
    own, of_line = _split(url)
    opener: Callable[[str, Clock], Store] = _load(_STORES, _scheme(own))
    store = opener(own, clock)
    return store if of_line is None else SignalledStore(store, _open_line(of_line))


def _open_line(url: str) -> OpenLine:
    opener: Callable[[str], OpenLine] = _load(_LINES, url.partition("://")[0] if "://" in url else "")
    return opener(url)


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
    found = {point.name: point for point in entry_points(group=group)}
    if scheme not in found:
        what = "URL scheme" if group == _STORES else "URL scheme of the option signals,"
        raise InvalidSetting(f"{what} {scheme!r} is unknown: use one of {', '.join(sorted(found))}")
    try:
        opener: Callable[..., Any] = found[scheme].load()
    except ImportError as error:
        raise InvalidSetting(
            f"the driver for {scheme}:// is not installed ({error}): pip install 'shardq[{_extra(found[scheme])}]'"
        ) from error
    return opener


def _extra(point: EntryPoint) -> str:
    """Return the extra that brings the driver: the name of the folder in which it is used."""
    return point.module.split(".")[-2]


def _scheme(url: object) -> str:
    if not isinstance(url, str) or "://" not in url:
        shown = "what was given" if "@" in str(url) else repr(url)  # there may be a password before an @
        raise InvalidSetting(f"{shown} is no URL of a store: give one such as 'sqlite:///queue.db'")
    try:
        return urlsplit(url).scheme
    except ValueError as error:
        raise InvalidSetting(
            f"the URL of the store cannot be read ({error}): in user and password write %5B for '[', %5D for ']'"
        ) from error
