"""Where a database is, and requests to it: translated to shardq's errors, one driver client for each process."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

import msgspec
from bson.codec_options import CodecOptions, TypeDecoder, TypeRegistry
from bson.int64 import Int64
from pymongo import MongoClient, WriteConcern
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import AutoReconnect, ConfigurationError, ServerSelectionTimeoutError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from shardq.base.log import Log
from shardq.base.waits import BackgroundThread
from shardq.errors import InvalidSetting
from shardq.storage.clocks import uptime
from shardq.storage.mongodb.documents import Document
from shardq.storage.mongodb.faults import DRIVER_ERRORS, spoils_client, translate
from shardq.storage.mongodb.guarantees import check_write_concern
from shardq.storage.opening import without_secrets
from shardq.storage.per_process import PerProcess

__all__ = ["Address", "Session", "clock_leads"]

_log = Log(__name__)

_ANSWER_SECONDS = 30.0
_FREE_SECONDS = 10.0  # for which a request waits for a connection of the pool
_YOUNG = 10.0  # seconds for which a client is not replaced by another one again

_SAMPLES = 8
_NEAR = 300  # microseconds; a single answer may be a thousand behind

_NESTED = frozenset((dict, list))
_AS_IT_IS: CodecOptions[Document] = CodecOptions(tz_aware=True)


class Address(msgspec.Struct, frozen=True):
    """The parts of a URL. Its text names hosts and database, never the credentials."""

    uri: str  # for the driver; it may hold a password
    database: str
    hosts: tuple[str, ...]
    connect_seconds: float = 10.0  # the most that finding a server, or connecting to it, may take

    def __str__(self) -> str:
        return f"MongoDB at {','.join(self.hosts)}, database {self.database!r},"

    def __repr__(self) -> str:
        return f"<{self}>"


def _plain(value: Any) -> Any:
    """Do what :class:`_PlainIntegers` does, which the driver leaves out where it is asked for a command's answer."""
    kind = type(value)
    if kind is Int64:
        return int(value)
    if kind is dict:
        for name, each in value.items():
            if type(each) is Int64:
                value[name] = int(each)
            elif type(each) in _NESTED:
                value[name] = _plain(each)
    elif kind is list:
        value[:] = map(_plain, value)
    return value


class _PlainIntegers(TypeDecoder):
    """Numbers of 64 bits are ints, not the driver's own kind of them, which no encoder beyond BSON knows."""

    bson_type = Int64

    def transform_bson(self, value: int) -> int:
        return int(value)


class _Connected:
    """The driver's client of one process."""

    def __init__(self, address: Address) -> None:
        self.client: MongoClient[Document] = _client(address)
        self.since = time.monotonic()
        try:
            asked: Document = {"w": "majority", "j": True} | self.client.write_concern.document
            check_write_concern(asked)
        except BaseException:
            self.client.close()
            raise
        self.write_concern = WriteConcern(**asked)
        self.database: Database[Document] = self.client.get_database(
            address.database,
            write_concern=self.write_concern,
            read_concern=ReadConcern("local"),
            read_preference=ReadPreference.PRIMARY,
            codec_options=self.client.codec_options.with_options(
                type_registry=TypeRegistry([_PlainIntegers()])
            ),
        )


class Session:
    """The store's connections. Connects when it is first used, again after a fork, and again after a close."""

    transaction: ClientSession | None = None
    """That of the application which every request is part of, if any."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connected = PerProcess(partial(_Connected, address))
        self._has_transactions = "replicaset=" in address.uri.lower()  # what was seen once stays so

    def close(self) -> None:
        """Give up the connections of this process."""
        if (connected := self._connected.take()) is not None:
            connected.client.close()

    def ping(self) -> None:
        """Ask the primary for an answer."""
        with self.translated(writing=False):
            self.database.command("ping")

    @property
    def client(self) -> MongoClient[Document]:
        """The driver's client. Use it within :meth:`translated`."""
        return self._connected.get().client

    @property
    def database(self) -> Database[Document]:
        """The database, with the write concern of the URL. Use it within :meth:`translated`."""
        return self._connected.get().database

    @property
    def write_concern(self) -> Document:
        """The concern to send with a write command."""
        return dict(self._connected.get().write_concern.document)

    @property
    def unsynced(self) -> Database[Document]:
        """The database, with writes that the primary confirms from memory. Use it within :meth:`translated`.

        They are for what counts only once a later write is confirmed, which waits, and what is seen to be missing then.
        """
        return self.database.with_options(write_concern=WriteConcern(1))

    @property
    def read_preference(self) -> str:
        """The read preference of the URL, which has no effect."""
        return self.client.read_preference.mongos_mode

    @property
    def has_transactions(self) -> bool:
        """True when the servers are known to be a replica set; makes no request."""
        connected = self._connected.known
        if connected is not None and not self._has_transactions:
            servers = connected.client.topology_description.server_descriptions().values()
            self._has_transactions = any(
                server.replica_set_name or server.server_type_name == "Mongos" for server in servers
            )
        return self._has_transactions

    def collection(self, name: str) -> Collection[Document]:
        """Return one collection. Use it within :meth:`translated`."""
        return self.database[name]

    def read(self, command: Document, transaction: ClientSession | None = None) -> list[Document]:
        """Return all documents that a ``find`` or an ``aggregate`` finds. Use it within :meth:`translated`.

        Each is parsed once, where the driver's own cursors parse it twice. Like theirs, the first request is made once
        more when the connection breaks. Further answers are read within the same session of the driver, as the server
        gives them to no other. Separate requests may each have another one.
        """
        if transaction is not None:
            return self._all(self._ask(command, transaction), transaction)
        command = command | {"readConcern": {"level": "local"}}
        with self.client.start_session(causal_consistency=False) as own:
            try:
                cursor = self._ask(command, own)
            except ServerSelectionTimeoutError:  # there is no server to ask again
                raise
            except AutoReconnect:
                cursor = self._ask(command, own)
            return self._all(cursor, own)

    def _all(self, cursor: Document, session: ClientSession) -> list[Document]:
        found: list[Document] = cursor["firstBatch"]
        while cursor["id"]:
            name = cursor["ns"].partition(".")[2]
            cursor = self._ask({"getMore": Int64(cursor["id"]), "collection": name}, session)
            found += cursor["nextBatch"]
        return [_plain(document) for document in found]

    def _ask(self, command: Document, session: ClientSession) -> Document:
        answer = self.database.command(command, codec_options=_AS_IT_IS, session=session)
        cursor: Document = answer["cursor"]
        return cursor

    def translated(self, *, writing: bool) -> AbstractContextManager[None]:
        """Raise shardq's errors instead of the driver's."""
        return _Translated(self.address, writing, self._replace_client)

    def _replace_client(self, reason: str) -> None:
        """Let the next request connect anew, as the driver's client does not recover.

        A thread that is interrupted within the driver may leave a connection counted as used for ever. Requests under
        way on the client are not cut off.
        """
        connected = self._connected.known
        if connected is None or time.monotonic() - connected.since < _YOUNG:
            return
        if (taken := self._connected.take()) is not None:
            _log.warning("%s %s: another client takes the place of this one", self.address, reason)
            BackgroundThread("shardq-close").run(taken.client.close)


class _Translated(msgspec.Struct, frozen=True):
    """A block whose errors are shardq's. A class, as every request is in such a block."""

    address: Address
    writing: bool
    replace_client: Callable[[str], None]

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, DRIVER_ERRORS):
            if reason := spoils_client(error):
                self.replace_client(reason)
            raise translate(error, str(self.address), writing=self.writing) from error


def _client(address: Address) -> MongoClient[Document]:
    """Make the driver's client. Timeouts in the URL go before those of the address."""
    given = address.uri.partition("?")[2].lower()
    connect = round(address.connect_seconds * 1_000)
    patience: Document = {
        "serverSelectionTimeoutMS": connect,
        "connectTimeoutMS": connect,
        "socketTimeoutMS": round(_ANSWER_SECONDS * 1_000),
        "waitQueueTimeoutMS": round(_FREE_SECONDS * 1_000),
    }
    patience = {name: value for name, value in patience.items() if f"{name.lower()}=" not in given}
    try:
        return MongoClient(address.uri, appname="shardq", tz_aware=True, **patience)
    except (ConfigurationError, ValueError, TypeError) as error:
        reason = without_secrets(error, address.uri)
    raise InvalidSetting(f"{address} cannot be used as the URL says ({reason}): correct the URL")


def clock_leads(session: Session, known: int | None) -> tuple[int]:
    """Ask by how many microseconds the primary's clock is ahead of this machine's uptime.

    The server returns whole milliseconds, rounded down. Each answer bounds the difference of the clocks from below, so
    nothing is due here before it is there. The highest bound of eight counts, or of fewer if it comes near to what is
    ``known``.
    """
    best = _sample(session)
    for _ in range(_SAMPLES - 1):
        if known is not None and abs(best - known) < _NEAR:
            break
        best = max(best, _sample(session))
    return (best,)


def _sample(session: Session) -> int:
    with session.translated(writing=False):
        answer = session.database.command("hello")["localTime"]
    after = uptime()
    return calendar.timegm(answer.timetuple()) * 1_000_000 + int(answer.microsecond) - after
