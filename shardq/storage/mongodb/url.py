"""``mongodb://user:password@host1,host2/database?replicaSet=rs0&tls=true``, with any option of the driver."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, unquote_plus

import msgspec
from pymongo.errors import ConfigurationError, PyMongoError
from pymongo.uri_parser import parse_uri

from shardq.base.clock import Clock
from shardq.errors import InvalidSetting
from shardq.storage.mongodb.guarantees import check_write_concern
from shardq.storage.mongodb.session import Address
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.opening import is_secret, read_url
from shardq.storage.store import Store

__all__ = ["open_mongodb", "parse"]

_DATABASE = re.compile(r"[A-Za-z0-9_-]{1,63}")
_PLAIN, _SRV = "mongodb://", "mongodb+srv://"
_OF_SRV = re.compile("(^|[&;])srv[^&;]*", re.IGNORECASE)  # options that the driver takes of such a URL only


def open_mongodb(
    url: str,
    clock: Clock,  # noqa: ARG001 -- the time is the server's
    *,
    connect_seconds: float | None = None,
) -> Store:
    """Open the store in the database that the URL names; raises InvalidSetting for a URL that names none."""
    address = parse(url)
    if connect_seconds is not None:
        address = msgspec.structs.replace(address, connect_seconds=connect_seconds)
    return MongoStore(address)


def parse(url: str) -> Address:
    """Parse the URL, without a request to anything. Errors do not repeat it: it may hold a password."""
    parts = read_url(url, "MongoDB URL")
    hosts, is_srv = tuple(parts.hosts.split(",")), url.startswith(_SRV)
    if not all(hosts):
        raise InvalidSetting("the MongoDB URL names no host: write mongodb://host1,host2/database")
    if is_srv and (len(hosts) > 1 or ":" in parts.hosts):
        raise InvalidSetting(
            "the mongodb+srv URL has several hosts, or a port: write mongodb+srv://name/database, with the name that "
            "lists the hosts"
        )
    query = _OF_SRV.sub("", parts.query).lstrip("&;") if is_srv else parts.query
    _check(f"{parts.login}@{parts.hosts}" if "@" in url else parts.hosts, query)
    # It is reported only now: behind a wrong host it may be a part of a password.
    database = unquote(parts.path).strip("/")
    if not _DATABASE.fullmatch(database) or database in ("admin", "local", "config"):
        raise InvalidSetting(
            f"database {database!r} of the MongoDB URL cannot be used: write mongodb://host/database, with letters, "
            "digits, '_' and '-', and none of the server's own"
        )
    return Address(url, database, hosts)


def _check(place: str, query: str) -> None:
    """Raise InvalidSetting for hosts, a login or options that the driver refuses. No name is looked up.

    The driver's error is not even the context of that, as it may repeat what it refuses.
    """
    options, wrong = {}, ""
    try:
        options = parse_uri(f"{_PLAIN}{place}/?{query}", warn=False)["options"]
    except OSError as error:
        wrong = (
            f"{_refused(query, OSError) or 'a file'}, which the MongoDB URL names, cannot be read "
            f"({os.strerror(error.errno or 0)}): check tlsCAFile and tlsCertificateKeyFile"
        )
    except (PyMongoError, ValueError) as error:
        wrong = (
            f"the MongoDB URL cannot be read ({_reason(error, query)}): check hosts, ports and options; write "
            "special characters of user and password as %XX"
        )
    if wrong:
        raise InvalidSetting(wrong)
    check_write_concern(
        {name: options[option] for name, option in (("w", "w"), ("j", "journal")) if option in options}
    )


def _reason(error: Exception, query: str) -> str:
    """Return the option that the driver does not know; else the kind of the error, as its text may have a password."""
    unknown = _refused(query, ConfigurationError) if str(error).startswith("Unknown option") else None
    return f"option {unknown} is unknown" if unknown else type(error).__name__


def _refused(query: str, kind: type[Exception]) -> str | None:
    """Return the first option that the driver refuses with such an error, which may not name it; of a file, its path.

    Behind a ``&`` that was not written as %26, a part of a password seems to be an option.
    """
    options = re.split("[&;]", query)
    for place, option in enumerate(options):
        name, _, value = option.partition("=")
        try:
            parse_uri(f"{_PLAIN}host/?{option}", warn=False)
        except kind:
            if kind is OSError:
                return repr(unquote_plus(value))
            return None if any(map(is_secret, options[:place])) else repr(name)
        except (OSError, PyMongoError, ValueError):
            continue
    return None
