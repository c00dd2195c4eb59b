"""The records of the queues, and their incarnations.

A queue that is being dropped keeps its record, condemned, until nothing of it is left. The next drop or create
finishes one that crashed on the way.

Each creation of a queue makes a new incarnation. Its name is part of the names of its collections and of every id in
the others. So a queue that is deleted and created again shares nothing with the one before. Writes of a client of that
one are never read, until a sweep removes them. An older queue without incarnations is called by its name alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from pymongo.errors import DuplicateKeyError

from shardq.base.shard import check_queue_name
from shardq.errors import InvalidName, QueueNotFound
from shardq.storage.clocks import Moment
from shardq.storage.mongodb.documents import Document
from shardq.storage.mongodb.session import Session
from shardq.storage.requests import QueueRecord

__all__ = [
    "QUEUES", "SIGN", "Incarnations", "among", "called", "condemn", "condemned", "create", "current_name",
    "is_condemned", "listing", "name_of", "names_between", "not_found", "parted", "plan", "planned", "record_of",
    "remove", "require", "update",
]  # fmt: skip

QUEUES = "shardq.queue"
_CONDEMNED = -1
_ALIVE = {"version": {"$ne": _CONDEMNED}}
_LONGEST = 255  # bytes of the name of a collection, with that of its database
_BESIDE_NAME = len(".@0f3a5c7e91:10000:15") + 1  # of a shard, beside its database and its queue
SIGN = "@"  # between a queue and the hexadecimal name of its incarnation
_AT = "~a"  # for that sign in the name of a queue; no queue's name has a tilde
_DOT = "~d"  # for a dot after a dot
_SECOND_DOT = re.compile(r"(?<=\.)\.")  # two dots may not be in the name of a collection

T = TypeVar("T")

_MEMORY = 5.0  # seconds
_MOST = 10_000  # queues that are remembered


def create(session: Session, record: QueueRecord) -> bool:
    """Store the record of a new incarnation; False when the name is taken.

    Raises InvalidName for what no collection can be named.
    """
    check_queue_name(record.name)
    length, most = len(name_of(record.name)), _LONGEST - _BESIDE_NAME - len(session.database.name)
    if length > most:
        raise InvalidName(
            f"queue name {record.name[:20]!r}... takes {length} characters of a collection's name, where '@' takes "
            f"two, and in the database {session.database.name!r} {most} are the most: use a shorter one"
        )
    if record.name.startswith("system."):
        raise InvalidName(
            f"queue name {record.name!r} cannot be used on MongoDB: begin it otherwise than 'system.'"
        )
    document = {"_id": record.name, "version": record.version, "settings": record.settings}
    with session.translated(writing=True):
        try:
            session.collection(QUEUES).insert_one(document | {"incarnation": os.urandom(5).hex()})
        except DuplicateKeyError:
            return False
    return True


def among(names: Collection[str]) -> Document:
    """Return the filter for those of the queues that exist."""
    return {"_id": {"$in": list(names)}} | _ALIVE


def record_of(found: Document) -> QueueRecord:
    """Return the record of what was read of a queue."""
    return QueueRecord(found["_id"], found["settings"], found["version"])


def update(session: Session, record: QueueRecord) -> bool:
    """Replace the record of the version before; False when there is none."""
    if record.version - 1 == _CONDEMNED:
        return False
    with session.translated(writing=True):
        done = session.collection(QUEUES).update_one(
            {"_id": record.name, "version": record.version - 1},
            {"$set": {"version": record.version, "settings": record.settings}},
        )
    return done.matched_count == 1


def listing(session: Session, prefix: str) -> tuple[str, ...]:
    """Return the names that start with the prefix, sorted."""
    filter = {"_id": {"$regex": f"^{re.escape(prefix)}"}} | _ALIVE if prefix else _ALIVE  # noqa: A001
    with session.translated(writing=False):
        return tuple(sorted(found["_id"] for found in session.collection(QUEUES).find(filter, {"_id": 1})))


def condemn(session: Session, name: str, seen: QueueRecord | None = None) -> bool:
    """Let the present incarnation exist no longer, whatever is left of it; False when there is none such.

    A request that was repeated may be carried out late: then it does not find the next incarnation.
    """
    with session.translated(writing=False):
        found = session.read({"find": QUEUES, "filter": {"_id": name}, "limit": 1})
    if not found:
        return False
    which: Document = {"_id": name, "incarnation": found[0].get("incarnation")}
    if seen is not None:
        which |= {"version": seen.version, "settings": seen.settings}
    with session.translated(writing=True):
        done = session.collection(QUEUES).update_one(which, {"$set": {"version": _CONDEMNED}})
    return done.matched_count == 1 or (seen is not None and is_condemned(session, name))


def is_condemned(session: Session, name: str) -> bool:
    """Return whether something may be left of a queue that was dropped."""
    with session.translated(writing=False):
        return session.collection(QUEUES).find_one({"_id": name, "version": _CONDEMNED}) is not None


def condemned(session: Session) -> list[str]:
    """Return the names of all queues that were dropped and of which something may be left."""
    with session.translated(writing=False):
        return [found["_id"] for found in session.read({"find": QUEUES, "filter": {"version": _CONDEMNED}})]


def remove(session: Session, name: str) -> None:
    """Delete a condemned record."""
    with session.translated(writing=True):
        session.collection(QUEUES).delete_one({"_id": name, "version": _CONDEMNED})


def current_name(session: Session, queue: str) -> str | None:
    """Return the name of the queue in the database, which names its incarnation; None when it does not exist."""
    found = _find(session, queue)
    return None if found is None else called(found)


def names_between(queue: str) -> tuple[tuple[str, str], ...]:
    """Return ranges, the ends not included, of what all of the queue's incarnations may be called, and nothing else."""
    plain = name_of(queue)
    return (plain, f"{plain} "), (f"{plain}{SIGN}", f"{plain}{SIGN}g")


def name_of(queue: str, incarnation: str | None = None) -> str:
    """Return the name of an incarnation: the queue's name alone for an older one without."""
    plain = _SECOND_DOT.sub(_DOT, queue.replace(SIGN, _AT))
    return f"{plain}{SIGN}{incarnation}" if incarnation else plain


def parted(name: str) -> tuple[str, str | None]:
    """Return queue and incarnation of such a name."""
    plain, _, incarnation = name.partition(SIGN)
    return plain.replace(_AT, SIGN).replace(_DOT, "."), incarnation or None


def plan(session: Session, name: str, shards: int) -> None:
    """Note how many shards the queue of this name may have.

    It asks for the right that making their collections needs, so that a client without it gets the error now.
    """
    queue, incarnation = parted(name)
    which = {"_id": queue, "incarnation": incarnation} | _ALIVE
    with session.translated(writing=True):
        session.collection(QUEUES).update_one(
            which, {"$set": {"shards": shards}}, bypass_document_validation=True
        )


def planned(session: Session) -> dict[str, int]:
    """Return how many shards each queue may have, 0 if that was not noted, by its name."""
    with session.translated(writing=False):
        found = session.collection(QUEUES).find(_ALIVE, {"settings": 0})
        return {called(each): each.get("shards", 0) for each in found}


def require(session: Session, name: str) -> None:
    """Raise QueueNotFound unless a queue exists that is called so."""
    queue, _ = parted(name)
    if current_name(session, queue) != name:
        raise not_found(queue)


def not_found(name: str) -> QueueNotFound:
    """Return the error for a queue that does not exist."""
    return QueueNotFound(f"queue {name!r} does not exist: create it first")


def called(found: Document) -> str:
    """Return what a queue is called in the database, by what was read of it."""
    return name_of(str(found["_id"]), found.get("incarnation"))


def _find(session: Session, name: str) -> Document | None:
    with session.translated(writing=False):
        found = session.read({"find": QUEUES, "filter": {"_id": name} | _ALIVE, "limit": 1})
    return found[0] if found else None


class Incarnations:
    """Which incarnations this client saw last.

    Requests to one that has ended find no message. So a client that finds none reads again; and every client after 5
    seconds.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: dict[str, tuple[str, Moment]] = {}

    def remembered(self) -> int:
        """Return how many queues are remembered."""
        return len(self._seen)

    def of(self, queue: str) -> str:
        """Return the name of the queue when it was last looked at; nothing is stored there if it does not exist."""
        known = self._seen.get(queue)
        return known[0] if known and known[1].passed() < _MEMORY else self.of_all((queue,))[queue]

    def of_all(self, queues: Collection[str]) -> dict[str, str]:
        """Return the same of several queues, with one request at most."""
        last = {queue: self._seen.get(queue, (name_of(queue),))[0] for queue in queues}
        stale = [queue for queue in queues if self._is_stale(queue)]
        return last | self._read_names(stale) if stale else last

    def find(self, queue: str) -> str | None:
        """Return the name of the queue now; None when it does not exist."""
        return self._read_names([queue]).get(queue)

    def last(self, queues: Collection[str]) -> dict[str, str]:
        """Return their names when they were last read, however long ago; reads those that it never did."""
        known = {queue: seen[0] for queue in queues if (seen := self._seen.get(queue)) is not None}
        unknown = [queue for queue in queues if queue not in known]
        return known | self._read_names(unknown) if unknown else known

    def load(self, queue: str) -> QueueRecord | None:
        """Return the queue's record, or None."""
        found = _find(self._session, queue)
        self.learn([queue], {queue: called(found)} if found else {})
        return record_of(found) if found else None

    def learn(self, queues: Collection[str], found: Mapping[str, str]) -> None:
        """Go by what was read of the queues just now: what those are called that exist."""
        if len(self._seen) >= _MOST:
            self._seen.clear()
        for queue in queues:
            if queue in found:
                self._seen[queue] = found[queue], Moment.now()
            else:
                self.forget(queue)

    def forget(self, queue: str) -> None:
        """Forget the name, which the next call reads."""
        self._seen.pop(queue, None)

    def require(self, queue: str) -> str:
        """Return the name of the queue now; raises QueueNotFound."""
        if (name := self.find(queue)) is None:
            raise not_found(queue)
        return name

    def have_changed(self, names: Mapping[str, str], found: Mapping[str, str] | None = None) -> bool:
        """Return whether any of the queues exists and is called otherwise than is given here.

        ``found`` is what was read of them just now; without it they are read, with one request.
        """
        if found is None:
            found = self._read_names(names)
        else:
            self.learn(names, found)
        return any(found.get(queue, name) != name for queue, name in names.items())

    def within(self, queue: str, do: Callable[[str], T], *, in_vain: Callable[[T], bool]) -> T:
        """Do it by what is known; once more, by what is true now, when it was in vain because of that."""
        name = self.of(queue)
        try:
            done = do(name)
        except QueueNotFound:
            if not self.have_changed({queue: name}):
                raise
            return do(self.of(queue))
        return do(self.of(queue)) if in_vain(done) and self.have_changed({queue: name}) else done

    def _is_stale(self, queue: str) -> bool:
        _, seen = self._seen.get(queue, ("", None))
        return seen is None or seen.passed() >= _MEMORY

    def _read_names(self, queues: Collection[str]) -> dict[str, str]:
        """Return what those that exist are called now, all read with one request."""
        asked = {"find": QUEUES, "filter": among(queues), "projection": {"settings": 0}}
        with self._session.translated(writing=False):
            found = {each["_id"]: called(each) for each in self._session.read(asked)}
        self.learn(queues, found)
        return found
