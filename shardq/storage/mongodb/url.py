"""``mongodb://user:password@host1,host2/database?replicaSet=rs0&tls=true``, with any option of the driver."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, unquote_plus, urlsplit

import msgspec
from pymongo.errors import ConfigurationError, PyMongoError
from pymongo.uri_parser import parse_uri

from shardq.clock import Clock
from shardq.errors import InvalidSetting
from shardq.storage.mongodb.guarantees import check_write_concern
from shardq.storage.mongodb.session import Address
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.store import Store

__all__ = ["open_mongodb", "parse"]

_DATABASE = re.compile(r"[A-Za-z0-9_-]{1,63}")
_SRV = "mongodb+srv"


def open_mongodb(
    url: str,
    clock: Clock,  # noqa: ARG001 -- the time is the server's
    *,
    connect_seconds: float | None = None,
) -> Store:
    """The store in the database that the URL names; raises InvalidSetting for a URL that names none."""
    address = parse(url)
    if connect_seconds is not None:
        address = msgspec.structs.replace(address, connect_seconds=connect_seconds)
    return MongoStore(address)


def parse(url: str) -> Address:
    """What the URL says, without a request to anything. Errors do not repeat it: it may hold a password."""
    if "#" in url:  # what follows it would be left out
        raise InvalidSetting("the MongoDB URL has a '#': write %23 in user, password and options")
    parts = urlsplit(url)
    database = unquote(parts.path).strip("/")
    if not _DATABASE.fullmatch(database) or database in ("admin", "local", "config"):
        raise InvalidSetting(
            f"database {database!r} of the MongoDB URL cannot be used: write mongodb://host/database, with letters, "
            "digits, '_' and '-', and none of the server's own"
        )
    hosts = tuple(parts.netloc.rpartition("@")[2].split(","))
    if not all(hosts):
        raise InvalidSetting("the MongoDB URL names no host: write mongodb://host1,host2/database")
    if parts.scheme != _SRV:  # a name of that kind has to be looked up first
        _check(url)
    return Address(url, database, hosts)


def _check(url: str) -> None:
    try:
        options = parse_uri(url, warn=False)["options"]
    except OSError as error:
        raise InvalidSetting(
            f"{_refused(url, OSError) or 'a file'}, which the MongoDB URL names, cannot be read "
            f"({os.strerror(error.errno or 0)}): check tlsCAFile and tlsCertificateKeyFile"
        ) from None
    except (PyMongoError, ValueError) as error:
        raise InvalidSetting(
            f"the MongoDB URL cannot be read ({_reason(error, url)}): check hosts, ports and options; write "
            "special characters of user and password as %XX"
        ) from None
    check_write_concern(
        {name: options[option] for name, option in (("w", "w"), ("j", "journal")) if option in options}
    )


def _reason(error: Exception, url: str) -> str:
    """The option that the driver does not know; else the kind of the error, as its text may tell a password."""
    unknown = _refused(url, ConfigurationError) if str(error).startswith("Unknown option") else None
    return f"option {unknown} is unknown" if unknown else type(error).__name__


def _refused(url: str, kind: type[Exception]) -> str | None:
    """The first option that the driver refuses with such an error, which may not name it; of a file, its path.

    Behind a ``?`` that was not written as %3F, a part of the password looks like an option; an ``@`` follows it then.
    """
    query = url.partition("?")[2]
    for option in () if "@" in query else re.split("[&;]", query):
        name, _, value = option.partition("=")
        try:
            parse_uri(f"mongodb://host/?{option}", warn=False)
        except kind:
            return repr(unquote_plus(value) if kind is OSError else name)
        except (OSError, PyMongoError, ValueError):
            continue
    return None
