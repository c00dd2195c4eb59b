"""Keys of the service: their roles, and the queues that they are for."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import msgspec

from shardq.base.patterns import NamePattern
from shardq.base.shard import INTERNAL
from shardq.base.texts import shown
from shardq.errors import InvalidName, InvalidSetting
from shardq.topics.names import folder_of, is_of_subscription

__all__ = ["EVERYTHING", "ROLES", "Grant", "KeyFile", "Role", "StoredKey"]

Role = Literal["read", "act", "manage"]
"""``read`` shows, ``act`` also sends, redrives, removes and evicts, ``manage`` also changes and deletes queues."""

ROLES: tuple[Role, ...] = get_args(Role)
_PREFIX = "sq"


class Grant(msgspec.Struct, frozen=True, dict=True):
    """The rights of a request: a role, for the queues whose names match one of the patterns.

    ``*`` stands for any characters but ``/``, ``**`` for any characters. The queue of a subscription matches by the
    name of its topic. Other queues that shardq makes for itself match no pattern. Raises InvalidName for a pattern that
    no queue can match.

    >>> Grant("ops", "act", ("orders*",)).may("read", "orders.dead")
    True
    """

    name: str
    role: Role
    queues: tuple[str, ...] = ("**",)

    def __post_init__(self) -> None:
        _ = self._patterns

    @cached_property
    def _patterns(self) -> tuple[NamePattern, ...]:
        return tuple(map(NamePattern.parse, self.queues))

    @property
    def sees_all(self) -> bool:
        """True when it is for all queues."""
        return "**" in self.queues

    def has(self, role: Role) -> bool:
        """Return whether it has a role, or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, queue: str) -> bool:
        """Return whether a queue's name matches one of its patterns."""
        if queue.startswith(INTERNAL):
            if not is_of_subscription(queue):
                return False
            queue = queue.removeprefix(folder_of()).partition("/")[0]
        return self.sees_all or any(pattern.matches(queue) for pattern in self._patterns)

    def may(self, role: Role, queue: str) -> bool:
        """Return whether it has a role for a queue."""
        return self.has(role) and self.sees(queue)


EVERYTHING = Grant("local", "manage")
"""The rights of each request where there are no keys."""


class StoredKey(msgspec.Struct, frozen=True):
    """A key as its file has it. The secret itself is stored nowhere."""

    id: str
    grant: Grant
    hash: str
    created: datetime

    def matches(self, secret: str) -> bool:
        """Return whether this is the key with a secret, in a time that does not tell how much of it is right."""
        return hmac.compare_digest(self.hash.encode(), _hash(secret).encode())


def _hash(secret: str) -> str:
    """Return the SHA-256 of a secret. It has 256 random bits, so nothing slower is needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


_decoder = msgspec.json.Decoder(list[StoredKey])


class KeyFile:
    """A file with the hashes of keys. A change of the file is noticed at the next request."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._seen: object = None
        self._keys: tuple[StoredKey, ...] = ()

    def keys(self) -> tuple[StoredKey, ...]:
        """Return the keys, none if there is no file. Raises InvalidSetting for a file that cannot be read."""
        try:
            status = self.path.stat()
            version = status.st_ino, status.st_mtime_ns, status.st_size
            if version != self._seen:
                self._keys, self._seen = tuple(_decoder.decode(self.path.read_bytes() or b"[]")), version
        except FileNotFoundError:
            self._keys, self._seen = (), None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, InvalidName) as error:
            raise InvalidSetting(
                f"keys={str(self.path)!r} cannot be read: {error}; restore the file, or create other keys"
            ) from error
        return self._keys

    def create(self, name: str, role: Role, queues: Sequence[str] = ("**",)) -> str:
        """Make a key and return it. It can be shown this once only. Raises InvalidSetting or InvalidName.

        In a pattern of ``queues``, ``*`` stands for any characters but ``/``, and ``**`` for any characters.
        """
        if not name or not name.isprintable() or len(name) > 100:
            raise InvalidSetting(f"name={shown(name)}: give 1 to 100 printable characters")
        if role not in ROLES:
            raise InvalidSetting(f"role={shown(role)}: give one of {', '.join(ROLES)}")
        if not queues or not all(queues):
            raise InvalidSetting(
                f"queues={shown(queues)}: give at least one pattern, such as '**' or 'orders*'"
            )
        identity, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        made = StoredKey(identity, Grant(name, role, tuple(queues)), _hash(secret), datetime.now(UTC))
        self._change(lambda keys: [*keys, made])
        return f"{_PREFIX}_{identity}_{secret}"

    def revoke(self, identity: str) -> bool:
        """Remove a key by its id; False when there is none. Its sessions end with it."""
        removed = False

        def without(keys: Sequence[StoredKey]) -> list[StoredKey]:
            nonlocal removed
            removed = any(key.id == identity for key in keys)
            return [key for key in keys if key.id != identity]

        self._change(without)
        return removed

    def find(self, key: str) -> StoredKey | None:
        """Return the stored key of a key as it was shown; None if it is unknown."""
        prefix, _, rest = key.partition("_")
        identity, _, secret = rest.partition("_")
        known = self.named(identity) if prefix == _PREFIX else None
        matches = (known or _NOBODY).matches(secret)  # an unknown id takes as long as a wrong secret
        return known if matches else None

    def named(self, identity: str) -> StoredKey | None:
        """Return the stored key of an id; None if there is none."""
        return next((key for key in self.keys() if key.id == identity), None)

    def _change(self, change: Callable[[Sequence[StoredKey]], list[StoredKey]]) -> None:
        with self._alone():
            self._seen = None
            changed = msgspec.json.format(msgspec.json.encode(change(self.keys())))
            fresh = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(changed)
                    stream.flush()
                    os.fsync(stream.fileno())
                fresh.replace(self.path)
            finally:
                fresh.unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process at a time change the file, by a lock on its folder."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise InvalidSetting(f"keys={str(self.path)!r}: its folder cannot be read: {error}") from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


_NOBODY = StoredKey("", Grant("", "read", ()), _hash(secrets.token_hex(16)), datetime.now(UTC))
