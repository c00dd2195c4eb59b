"""Opening a store by its URL.

Stores are found by their URL's scheme among the entry points of the group ``shardq.stores``, so a store of
another package needs no change here. An entry point is a function that takes the URL and a clock and returns
a :class:`~shardq.storage.store.Store`; it makes no connection yet.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from shardq.clock import Clock
from shardq.errors import InvalidSetting
from shardq.storage.store import Store

__all__ = ["open_store"]

_GROUP = "shardq.stores"


def open_store(url: str, clock: Clock) -> Store:
    """The store that a URL names; raises InvalidSetting when there is none for it."""
    scheme = _scheme(url)
    found = {point.name: point for point in entry_points(group=_GROUP)}
    if scheme not in found:
        raise InvalidSetting(f"URL scheme {scheme!r} is unknown: use one of {', '.join(sorted(found))}")
    try:
        opener: Callable[[str, Clock], Store] = found[scheme].load()
    except ImportError as error:
        extra = scheme.partition("+")[0]
        raise InvalidSetting(
            f"the driver for {scheme}:// is not installed ({error}): pip install 'shardq[{extra}]'"
        ) from error
    return opener(url, clock)


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
