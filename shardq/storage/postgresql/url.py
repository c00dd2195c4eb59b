"""``postgresql://user:password@host1,host2/database?schema=shardq&sslmode=verify-full``, with any option of libpq.

``schema`` is that of the tables, ``pool_size`` the most connections of a process, ``timeout`` the seconds that an
answer may take. ``prepare=false`` does without prepared statements, for PgBouncer before 1.21 in transaction mode.
"""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import parse_qsl, quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shardq.base.clock import Clock
from shardq.errors import InvalidSetting
from shardq.storage.opening import is_secret, read_url
from shardq.storage.postgresql.connections import Address
from shardq.storage.postgresql.session import POOL_SIZE
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.store import Store

__all__ = ["open_postgresql", "parse"]

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._%-]+)(:[0-9]{1,5})?")
_LONGEST_NAME = 63  # bytes of an identifier
_OWN = ("schema", "prepare", "pool_size", "timeout")
# The default of libpq unless the URL sets another: give up a server that does not acknowledge sent data.
_DEFAULTS = {
    "application_name": "shardq",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "target_session_attrs": "read-write",  # a standby, or a primary that has become one, takes no writes
}
_CONNECT_SECONDS = 10.0


def open_postgresql(
    url: str,
    clock: Clock,  # noqa: ARG001 -- the time is the server's
    *,
    connect_seconds: float | None = None,
) -> Store:
    """Open the store in the schema that the URL names; raises InvalidSetting for a URL that names none."""
    address, pool_size = parse(url, connect_seconds or _CONNECT_SECONDS)
    return PostgresStore(address, pool_size=pool_size)


def parse(url: str, connect_seconds: float = _CONNECT_SECONDS) -> tuple[Address, int]:
    """Parse the URL; return its parts and the size of the pool. Errors do not repeat it: it may hold a password."""
    parts = read_url(url, "PostgreSQL URL")
    options = _options(parts.query)
    own = {name: options.pop(name) for name in _OWN if name in options}
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        raise InvalidSetting("the PostgreSQL URL names no database: write postgresql://host/database")
    # libpq would take what follows the first @ as a host, and name that in its errors.
    login = parts.login.replace("@", "%40") + "@" if parts.login else ""
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in options.items())
    given = _read(f"postgresql://{login}{parts.hosts}{parts.path}?{query}", options)
    defaults = _DEFAULTS | {"connect_timeout": str(max(2, round(connect_seconds)))}
    # A role may have an encoding without some characters that names of consumers have.
    conninfo = make_conninfo("", **(defaults | given | {"client_encoding": "utf8"}))
    hosts = _hosts(parts.hosts) or (given.get("host", "a local socket"),)
    address = Address(
        conninfo, hosts, database, _schema(own), prepares=_prepares(own), patience=_patience(own)
    )
    return address, _pool_size(own)


def _options(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        pass
    raise InvalidSetting("the options of the PostgreSQL URL cannot be read: write name=value&name=value")


def _read(url: str, options: dict[str, str]) -> dict[str, str]:
    """Take a URL of libpq apart. No error of the driver is even the context of one, as it may repeat a password."""
    if (read := _taken_apart(url)) is not None:
        return read
    unknown = [name for name in options if _taken_apart(f"postgresql:///?{quote(name, safe='')}=1") is None]
    if unknown:
        shown = "an option" if any(map(is_secret, options)) else f"option {unknown[0]!r}"
        raise InvalidSetting(
            f"{shown} of the PostgreSQL URL is unknown: use those of libpq, schema, pool_size, timeout and prepare"
        )
    raise InvalidSetting(
        "the PostgreSQL URL cannot be read: check hosts, ports and options; write special characters of user and "
        "password as %XX"
    )


def _taken_apart(url: str) -> dict[str, str] | None:
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except (psycopg.ProgrammingError, UnicodeDecodeError):  # the latter has what it cannot decode
        return None


def _hosts(text: str) -> tuple[str, ...]:
    """Return the hosts, which errors name. Behind a wrong one may be a part of a password."""
    hosts = tuple(text.split(",")) if text else ()
    if not all(map(_HOST.fullmatch, hosts)):
        raise InvalidSetting(
            "the hosts of the PostgreSQL URL cannot be read: write postgresql://host1:5432,host2/database"
        )
    return hosts


def _schema(own: dict[str, str]) -> str:
    name = own.get("schema", "shardq")
    if (
        not name
        or "\0" in name
        or "@" in name
        or len(name.encode()) > _LONGEST_NAME
        or name.startswith("pg_")
    ):
        raise InvalidSetting(
            f"schema={name!r} in the PostgreSQL URL cannot be used: give a name of at most {_LONGEST_NAME} bytes that "
            "does not begin with 'pg_'"
        )
    return name


def _prepares(own: dict[str, str]) -> bool:
    value = own.get("prepare", "true")
    if value not in ("true", "false"):
        raise InvalidSetting(f"prepare={value!r} in the PostgreSQL URL is unknown: use true or false")
    return value == "true"


def _patience(own: dict[str, str]) -> float:
    value = own.get("timeout", "30")
    with suppress(ValueError):
        if 0.1 <= float(value) <= 3_600:
            return float(value)
    raise InvalidSetting(
        f"timeout={value!r} in the PostgreSQL URL is out of range: give seconds from 0.1 to 3600"
    )


def _pool_size(own: dict[str, str]) -> int:
    value = own.get("pool_size", str(POOL_SIZE))
    if not value.isdecimal() or not 2 <= int(value) <= 1000:
        raise InvalidSetting(f"pool_size={value!r} in the PostgreSQL URL is out of range: give 2 to 1000")
    return int(value)
