"""Slices, spans and raw entries as the messages they stand for, so that they can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from shardq.storage.requests import Bundle, Span
from shardq.testing.harness import RawEntry, RawState

__all__ = ["Message", "of_bundle", "of_bundles", "of_entries", "of_slices", "of_spans"]

Message = tuple[bytes, int]  # a bundle's id and the position in it


class _Slice(Protocol):
    @property
    def bundle(self) -> Bundle: ...
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...


def of_slices(slices: Iterable[_Slice]) -> list[Message]:
    """Return the messages of claimed or stored slices, in their order."""
    return [(each.bundle.id, each.first + i) for each in slices for i in range(each.count)]


def of_spans(spans: Iterable[Span | RawEntry]) -> list[Message]:
    """Return the messages that spans stand for, in their order."""
    return [(span.bundle_id, span.first + i) for span in spans for i in range(span.count)]


def of_entries(entries: Iterable[RawEntry], *states: RawState) -> list[Message]:
    """Return the messages of the raw entries in one of the states, sorted."""
    return sorted(of_spans(entry for entry in entries if entry.state in states))


def of_bundle(bundle: Bundle, first: int = 0, count: int | None = None) -> list[Message]:
    """Return the messages of a bundle, or ``count`` of them from ``first`` on."""
    return [(bundle.id, first + i) for i in range(bundle.count - first if count is None else count)]


def of_bundles(*bundles: Bundle) -> list[Message]:
    """Return the messages of several bundles, in their order."""
    return [message for bundle in bundles for message in of_bundle(bundle)]
