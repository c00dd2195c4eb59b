"""``cassandra://user:password@host1,host2:9042/keyspace?local_dc=dc1&consistency=LOCAL_QUORUM``."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

import msgspec

from shardq.base.clock import Clock
from shardq.errors import InvalidSetting
from shardq.storage.cassandra.connecting import Address
from shardq.storage.cassandra.guarantees import LEVELS, SERIAL_LEVELS, require_overlap_in
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.opening import read_url
from shardq.storage.store import Store

__all__ = ["open_cassandra", "parse"]

_KEYSPACE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_PORT = re.compile(r"[0-9]{1,5}")
_TOO_LITTLE = ("ANY", "ONE", "TWO", "THREE", "LOCAL_ONE")
_OPTIONS = (
    "local_dc",
    "consistency",
    "serial_consistency",
    "replication",
    "timeout",
    "ssl",
    "ca",
    "cert",
    "key",
)


def open_cassandra(
    url: str,
    clock: Clock,  # noqa: ARG001 -- the time is the server's
    *,
    connect_seconds: float | None = None,
) -> Store:
    """Open the store in the keyspace that the URL names; raises InvalidSetting for a URL that names none."""
    address = parse(url)
    if connect_seconds is not None:
        address = msgspec.structs.replace(address, connect_seconds=connect_seconds)
    return CassandraStore(address)


def parse(url: str) -> Address:
    """Parse the URL. Errors do not repeat it: it may hold a password."""
    parts = read_url(url, "Cassandra URL")
    hosts, port = _hosts(parts.hosts)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = next((option for option in options if option not in _OPTIONS), None)
    if unknown is not None:
        raise InvalidSetting(
            f"option {unknown!r} of the Cassandra URL is unknown: use {', '.join(_OPTIONS)}, signals"
        )
    user, _, password = parts.login.partition(":")
    address = Address(
        hosts=hosts,
        port=port,
        keyspace=_keyspace(unquote(parts.path).strip("/")),
        user=unquote(user),
        password=unquote(password),
        local_dc=_name("local_dc", options.get("local_dc", "")),
        consistency=_choice("consistency", options.get("consistency", "LOCAL_QUORUM"), LEVELS),
        serial_consistency=_choice(
            "serial_consistency", options.get("serial_consistency", "LOCAL_SERIAL"), SERIAL_LEVELS
        ),
        replication=_replication(options.get("replication", "")),
        timeout=_timeout(options.get("timeout", "10")),
        ssl=_flag(options.get("ssl", "false")) or "ca" in options or "cert" in options,
        ca=options.get("ca", ""),
        cert=options.get("cert", ""),
        key=options.get("key", ""),
    )
    require_overlap_in({name for name, _ in address.replication}, address)
    return address


def _hosts(places: str) -> tuple[tuple[str, ...], int]:
    found = [place.partition(":") for place in places.split(",")]
    hosts = tuple(host for host, _, _ in found)
    ports = {port for _, _, port in found if port}
    if not all(hosts):
        raise InvalidSetting(
            "the Cassandra URL names no host, or one without a name: write cassandra://host1,host2:9042/keyspace"
        )
    if len(ports) > 1 or not all(_PORT.fullmatch(port) and 0 < int(port) < 65536 for port in ports):
        raise InvalidSetting(
            "the Cassandra URL has several ports, or one that is not a number from 1 to 65535: write "
            "cassandra://host1,host2:9042/keyspace, with one for all hosts"
        )
    return hosts, int(next(iter(ports), "9042"))


def _keyspace(text: str) -> str:
    if not _KEYSPACE.fullmatch(text):
        raise InvalidSetting(
            f"keyspace {text!r} of the Cassandra URL cannot be used: give a letter, then up to 47 letters, digits and _"
        )
    return text


def _name(option: str, text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise InvalidSetting(
            f"{option}={text!r} is not a name of a data centre: use letters, digits, '.', '_', '-'"
        )
    return text


def _replication(text: str) -> tuple[tuple[str, int], ...]:
    pairs = [item.partition(":") for item in text.split(",") if item]
    if not all(_NAME.fullmatch(name) and copies.isdecimal() and int(copies) for name, _, copies in pairs):
        raise InvalidSetting(f"replication={text!r} cannot be read: write replication=dc1:3,dc2:3")
    return tuple((name, int(copies)) for name, _, copies in pairs)


def _choice(option: str, text: str, choices: tuple[str, ...]) -> str:
    if text.upper() in _TOO_LITTLE:
        raise InvalidSetting(
            f"{option}={text!r} is not enough: reads would miss writes; use one of {', '.join(choices)}"
        )
    if text.upper() not in choices:
        raise InvalidSetting(f"{option}={text!r} is unknown: use one of {', '.join(choices)}")
    return text.upper()


def _flag(text: str) -> bool:
    if text.lower() not in ("", "true", "false", "1", "0"):
        raise InvalidSetting(f"ssl={text!r} is unknown: use true or false")
    return text.lower() in ("", "true", "1")


def _timeout(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise InvalidSetting(f"timeout={text!r} cannot be used: give seconds above 0")
    return seconds
