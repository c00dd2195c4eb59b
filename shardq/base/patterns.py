"""Patterns of queue names, such as ``mail/*``."""

from __future__ import annotations

import re

import msgspec

from shardq.base.shard import INTERNAL, MAX_NAME_LENGTH
from shardq.base.texts import kind_of, shown
from shardq.errors import InvalidName

__all__ = ["NamePattern", "is_pattern"]

_STARS = re.compile(r"(\*+)")
_ALLOWED = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._/@*-]*")
_LONGEST = 2 * MAX_NAME_LENGTH


def is_pattern(name: object) -> bool:
    """Return whether it is a text with a ``*``, which no queue has in its name."""
    return isinstance(name, str) and "*" in name


class NamePattern(msgspec.Struct, frozen=True):
    """A pattern: ``*`` stands for any characters but ``/``, ``**`` for any characters. Either may stand for none.

    >>> [name for name in ("mail", "mail/a", "mail/a/b") if NamePattern.parse("mail/*").matches(name)]
    ['mail/a']
    >>> [name for name in ("mail", "mail/a", "mail/a/b") if NamePattern.parse("mail/**").matches(name)]
    ['mail/a', 'mail/a/b']
    """

    text: str
    _parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: object) -> NamePattern:
        """Return the pattern. Raises InvalidName for a text that matches no queue, whatever queues there are."""
        if not isinstance(text, str):
            raise InvalidName(f"pattern {shown(text)} is {kind_of(text)}: give a str, such as 'mail/*'")
        if text.startswith(INTERNAL):
            raise InvalidName(
                f"pattern {shown(text)} is of queues that shardq makes for itself, which no pattern matches: "
                "name each of them"
            )
        if len(text) > _LONGEST or not _ALLOWED.fullmatch(text):
            raise InvalidName(
                f"pattern {shown(text)} cannot match the name of a queue: use letters, digits, '.', '_', '-', '/' and "
                f"'@', '*' for any characters but '/', and '**' for any characters; at most {_LONGEST} in all"
            )
        parts = tuple(filter(None, _STARS.split(text)))
        if odd := next((part for part in parts if part.startswith("***")), None):
            raise InvalidName(
                f"pattern {shown(text)} has {odd!r}: use '*' for any characters but '/', or '**' for any characters"
            )
        return cls(text, parts)

    def matches(self, name: str) -> bool:
        """Return whether the pattern stands for the name. The time grows no faster than the square of their lengths."""
        ends = {0}  # of what the parts before may stand for
        for part in self._parts:
            if part == "**":
                ends = set(range(min(ends), len(name) + 1))
            elif part == "*":
                ends = {after for end in ends for after in range(end, _end_of_level(name, end) + 1)}
            else:
                ends = {end + len(part) for end in ends if name.startswith(part, end)}
            if not ends:
                return False
        return len(name) in ends


def _end_of_level(name: str, start: int) -> int:
    slash = name.find("/", start)
    return len(name) if slash < 0 else slash
