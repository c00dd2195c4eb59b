"""URLs: opening the store that one names, and reading one without repeating what may be a password.

Shardq's own stores are in a table. Stores of other packages are found by their URL's scheme among the entry points of
the group ``shardq.stores``. Those are read for other schemes only, as that is slow. An entry point is a function that
takes the URL and a clock and returns a :class:`~shardq.storage.store.Store`; it makes no connection yet.

The option ``signals`` of any store's URL is the URL of a channel for signals, which the store itself is not given.
Channels are found in the same way, in a table or in the group ``shardq.signals``. Their functions take the URL and
return a :class:`~shardq.storage.signals.OpenSignalChannel`.

If a character of a password is not written as %XX, the rest of the password may be read as a host, a path, a database
or an option. So stores take their URLs apart by :func:`read_url`, which refuses such a URL before any part of it gets
into a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from shardq.base.clock import Clock
from shardq.base.texts import shown
from shardq.errors import InvalidSetting
from shardq.storage.store import Store

__all__ = [
    "HasUrl",
    "Parts",
    "check_between_processes",
    "is_secret",
    "open_store",
    "read_url",
    "without_secrets",
]

_STORES, _CHANNELS = "shardq.stores", "shardq.signals"
_OWN = {
    _STORES: {
        "cassandra": "shardq.storage.cassandra.url:open_cassandra",
        "memory": "shardq.storage.sqlite.memory:open_memory",
        "mongodb": "shardq.storage.mongodb.url:open_mongodb",
        "mongodb+srv": "shardq.storage.mongodb.url:open_mongodb",
        "postgres": "shardq.storage.postgresql.url:open_postgresql",
        "postgresql": "shardq.storage.postgresql.url:open_postgresql",
        "sqlite": "shardq.storage.sqlite.url:open_sqlite",
    },
    _CHANNELS: {"redis": "shardq.storage.redis:open_redis", "rediss": "shardq.storage.redis:open_redis"},
}
_OF_ONE_PROCESS = {"memory"}
_ON_A_NETWORK = {"cassandra", "mongodb", "mongodb+srv", "postgres", "postgresql"}
_OPTION = "signals="
_LEAST_TO_CONNECT, _MOST_TO_CONNECT = 2.0, 10.0  # seconds; a busy server needs the least, too

_PLAIN = re.compile(r"(?:(?:sqlite|memory):)?[\w./\\~ -]*")  # somebody has given the name of a file
_SECRET = re.compile("pass|pwd|secret|token|credential|propert", re.IGNORECASE)
_SHORT = 4  # characters; a text may have fewer of a password by chance


class Parts(msgspec.Struct, frozen=True):
    """The parts of a URL with hosts, as they are written there."""

    login: str  # user:password, or empty
    hosts: str
    path: str
    query: str


class HasUrl(msgspec.Struct, frozen=True):
    """Something that keeps the URL of a store in a field ``url``, which its text shows without login and options."""

    def __repr__(self) -> str:
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        texts = (f"{name}={shown(value) if name == 'url' else repr(value)}" for name, value in values)
        return f"{type(self).__name__}({', '.join(texts)})"


def open_store(url: str, clock: Clock, *, retry_seconds: float | None = None) -> Store:
    """Return the store that a URL names; raises InvalidSetting when there is none for it.

    With ``retry_seconds`` an attempt to connect takes at most half of them, within 2 to 10 seconds, unless the URL has
    timeouts. So a call to a store that is unreachable fails soon after its repetitions end.
    """
    own, of_channel = _split(url)
    scheme = _scheme_of(own)
    if wrong := next((each for each in own if not each.isprintable() and each.isascii()), None):
        raise InvalidSetting(
            f"the URL of the store has the character {wrong!r}: leave it out, or write %{ord(wrong):02X} in its place"
        )
    opener: Callable[..., Store] = _load(_STORES, scheme)
    limits = {}
    if retry_seconds is not None and scheme in _ON_A_NETWORK:
        limits["connect_seconds"] = min(max(retry_seconds / 2, _LEAST_TO_CONNECT), _MOST_TO_CONNECT)
    store = opener(own, clock, **limits)
    return store if of_channel is None else _signalled(store, of_channel)


def check_between_processes(url: str, who: str) -> None:
    """Raise InvalidSetting when the URL names a store that other processes cannot open, or is none."""
    scheme = _scheme_of(_split(url)[0])
    if scheme in _OF_ONE_PROCESS:
        raise InvalidSetting(
            f"'{scheme}://' is of one process, and {who}: name a store that others can open, such as "
            "'sqlite:///queue.db'"
        )
    _target(_STORES, scheme)


def read_url(url: str, name: str) -> Parts:
    """Return the parts of a URL with hosts. Raises InvalidSetting, which calls it by this name and repeats nothing."""
    parts = _parts_of(url, name)
    if "@" in parts.path + parts.query + parts.fragment:
        raise InvalidSetting(
            f"user or password of the {name} has a '/', '?' or '#': write %2F, %3F or %23 in their place, and %40 for "
            "an '@' in the options"
        )
    if "#" in url:  # what follows it would be left out
        raise InvalidSetting(f"the {name} has a '#': write %23 in user, password and options")
    login, _, hosts = parts.netloc.rpartition("@")
    return Parts(login, hosts, parts.path, parts.query)


def is_secret(option: str) -> bool:
    """Return True when the value of an option, by its name, may be a password or hold one."""
    return _SECRET.search(option.partition("=")[0]) is not None


def without_secrets(error: BaseException, url: str) -> str:
    """Return the text of a driver's error with its type, or its type alone if it repeats a part of login or options."""
    parts, kind = urlsplit(url), type(error).__name__
    login, text = parts.netloc.rpartition("@")[0], str(error)
    given = re.split("[:@/?#&;=,]+", f"{login}&{parts.query}&{unquote(login)}&{unquote(parts.query)}")
    return kind if any(len(each) >= _SHORT and each in text for each in given) else f"{kind}: {text}"[:300]


def _signalled(store: Store, url: str) -> Store:
    from shardq.storage.wrapped_store import SignalledStore  # noqa: PLC0415 - needed with signals= only

    opener = _load(_CHANNELS, _scheme_of(url, "channel for the option signals", "redis://host:6379/0"))
    return SignalledStore(store, opener(url))


def _split(url: str) -> tuple[str, str | None]:
    """Return the URL for the store, and that of its channel, as it stands there or quoted whole."""
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
    channel = given[0] if "://" in given[0] else unquote(given[0])
    return place + ("?" if others else "") + "&".join(others), channel


def _target(group: str, scheme: str) -> str:
    """Return the module and name of what opens a scheme. Raises InvalidSetting for one that is unknown."""
    if target := _OWN[group].get(scheme) or _of_other_packages(group).get(scheme):
        return target
    what = "URL scheme" if group == _STORES else "URL scheme of the option signals,"
    known = ", ".join(sorted({*_OWN[group], *_of_other_packages(group)}))
    raise InvalidSetting(f"{what} {shown(scheme)} is unknown: use one of {known}")


def _load(group: str, scheme: str) -> Callable[..., Any]:
    module, _, name = _target(group, scheme).partition(":")
    try:
        opener: Callable[..., Any] = getattr(import_module(module), name)
    except ImportError as error:
        # It is called as the folder, or the module, in which the driver is used.
        extra = module.removeprefix("shardq.storage.").partition(".")[0]
        raise InvalidSetting(
            f"the driver for {scheme}:// is not installed ({error}): pip install 'shardq[{extra}]'"
        ) from error
    return opener


def _of_other_packages(group: str) -> dict[str, str]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and mostly not needed

    return {point.name: point.value for point in entry_points(group=group)}


def _scheme_of(url: object, what: str = "store", example: str = "sqlite:///queue.db") -> str:
    """Return the scheme of a URL. Raises InvalidSetting, which shows another text only if it can be a file's name."""
    if isinstance(url, str) and "://" in url:
        return _parts_of(url, f"URL of the {what}").scheme
    is_plain = _PLAIN.fullmatch(url) if isinstance(url, str) else not isinstance(url, bytes)
    text = shown(url) if is_plain else "what was given"
    raise InvalidSetting(f"{text} is not a URL of a {what}: give one such as {example!r}")


def _parts_of(url: str, name: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # its text repeats the login
        pass
    raise InvalidSetting(
        f"the {name} cannot be read: in user and password write %5B for '[', %5D for ']', and letters beyond ASCII as "
        "%XX too"
    )
