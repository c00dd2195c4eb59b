"""Defects of the claim protocol, each in one place: the model has to find every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import Any, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from shardq.storage.cassandra import (
    bundles,
    changing,
    claims,
    probing,
    read_cursors,
    rows,
    scanning,
    shard_rows,
)
from shardq.storage.cassandra.changing import Change
from shardq.storage.cassandra.groups import changing as group_changing
from shardq.storage.cassandra.groups import claims as group_claims


class Mutation(NamedTuple):
    """A defect, a scenario that shows it, and what is to be seen."""

    defect: AbstractContextManager[Any]
    scenario: str
    seen: str


def _without(module: Any, name: str, words: str) -> AbstractContextManager[Any]:
    """A statement that lacks some of its words; the value that is bound to them is left over."""
    statement = getattr(module, name)
    assert words in statement
    return patch.object(module, name, statement.replace(words, ""))


@contextmanager
def _no_due_rows() -> Iterator[None]:
    hold = Change.hold

    def held(self: Change, lease: Any, carried: Any = None) -> None:
        hold(self, lease, carried)
        del self._written[lease.due_row]

    with patch.object(Change, "hold", held):
        yield


@contextmanager
def _no_look_at_write_times() -> Iterator[None]:
    control_row: Any = rows.control_row

    def seen(*columns: Any) -> Any:
        return control_row(*columns[:4], 2**62)

    with patch.object(shard_rows, "control_row", seen):
        yield


def _scan_in_two_parts(*args: Any, **options: Any) -> Iterator[Any]:
    """As where a server refuses a read for its tombstones: the second part is read after the first."""
    *rest, start, end = args
    scan: Any = scanning.scan
    cut = (*start[:2], b"\2", start[3])
    if not start < cut < end:
        return scan(*args, **options)
    parts = [scan(*rest, low, high, **options) for low, high in ((start, cut), (cut, end))]
    return chain.from_iterable(parts)


@contextmanager
def reads_in_parts() -> Iterator[None]:
    """Let every scan take several requests."""
    with patch.object(shard_rows, "scan", _scan_in_two_parts):
        yield


@contextmanager
def _undisturbed_looks() -> Iterator[None]:
    def once(_: Any, look: Any) -> Any:
        return look(), True

    with reads_in_parts(), patch.object(shard_rows.WideRow, "undisturbed", once):
        yield


@contextmanager
def _early_deliveries() -> Iterator[None]:
    survey = claims._Claimer.survey

    def ahead(self: Any, now: int) -> Any:
        return survey(self, now + 60_000_000)

    with patch.object(claims._Claimer, "survey", ahead):
        yield


@contextmanager
def _read_on_from_the_change() -> Iterator[None]:
    take = group_claims._Claimer.take

    def later(self: Any, found: Any, draft: Any, taken: Any) -> Any:
        return take(self, replace(found, now=draft.now), draft, taken)

    with patch.object(group_claims._Claimer, "take", later):
        yield


@contextmanager
def _lease_rows_over_others() -> Iterator[None]:
    hold = Change.hold

    def held(self: Change, lease: Any, carried: Any = None) -> None:
        hold(self, lease, carried)
        self._guarded.discard(lease.key)

    with patch.object(Change, "hold", held):
        yield


MUTATIONS = {
    "ready rows are taken without the condition on `taken`": Mutation(
        _without(changing, "CQL_TAKE", " IF taken = ?"),
        "two consumers of a bundle and a single",
        "in two places",
    ),
    "a lease row is given up without a look at its value": Mutation(
        _without(changing, "CQL_DELETE_SEEN", " IF value = ?"),
        "a lease that runs out, an answer that is lost",
        "is lost|finished|moved message",
    ),
    "an append has the time of its writing": Mutation(
        _without(bundles, "CQL_ROW_WITH_DATA", " USING TIMESTAMP ?"),
        "an append that comes late",
        "back after it was finished|two places",
    ),
    "low watermarks are raised to the present": Mutation(
        patch.object(read_cursors, "GUARD", 0),
        "an append while low watermarks rise",
        "not delivered any more",
    ),
    "a late append is not announced": Mutation(
        patch.object(bundles, "lower", lambda *_: None), "low watermarks that rise", "not delivered any more"
    ),
    "a deep probe leaves the low watermarks where they are": Mutation(
        patch.object(probing, "lower", lambda *_: None),
        "two consumers of a bundle and a single",
        "not delivered any more",
    ),
    "a lease row has no due row": Mutation(
        _no_due_rows(), "two consumers of a bundle and a single", "not delivered any more"
    ),
    "the rest of a slice is forgotten": Mutation(
        patch.object(Change, "offer", lambda *_: None),
        "two consumers of a bundle and a single",
        "moved message",
    ),
    "a change without an answer counts as done": Mutation(
        patch.object(Change, "_read_back", lambda _: True),
        "a lease that runs out, an answer that is lost",
        "never held|did not",
    ),
    "rows of a clock that is ahead are taken": Mutation(
        _no_look_at_write_times(), "clocks that differ", "two places|not delivered|for ever|left behind"
    ),
    "what a disturbed look did not find counts as gone": Mutation(
        _undisturbed_looks(), "a lost lease that goes on changing hands", "is gone, and it is stored"
    ),
    "a group is changed without a look at its value": Mutation(
        _without(changing, "CQL_REPLACE", " IF value = ?"),
        "two consumers of groups and a sender",
        "moved message|not as the groups are|is lost|back after it was finished",
    ),
    "a repeated send to a group is stored again": Mutation(
        _without(changing, "_STORE_GROUPED", " IF value = null"),
        "two consumers of groups and a sender",
        "two places|out of order|back after it was finished",
    ),
    "a claim of groups does not look whether something is under its token": Mutation(
        _lease_rows_over_others(),
        "one claim of groups under one name by two processes",
        "not as the groups are|not delivered",
    ),
    "a claim of groups reads on from the moment of its change, not of its look": Mutation(
        _read_on_from_the_change(), "two consumers of groups and a sender", "not delivered any more"
    ),
    "a lease row of groups goes with the first of them": Mutation(
        patch.object(group_changing, "fronts_of", lambda _: ()),
        "groups that are given back",
        "not as the groups are|not delivered",
    ),
    "what follows in a group has no row by which it is found": Mutation(
        patch.object(group_changing, "rows_of", lambda _: {}),
        "groups that are given back",
        "left behind|not as the groups are|not delivered",
    ),
    "a lease that runs still is taken over": Mutation(
        _early_deliveries(), "renewals and parts", "moved message"
    ),
}
