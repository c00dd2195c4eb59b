"""An attempt at a task whose rows differ from those of an earlier attempt is never taken for a repetition of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardq
from shardq.errors import InvalidMessage, ReplayConflict
from shardq.spark import spool
from shardq.spark.roles import numbers_of
from shardq.storage.sqlite.store import SqliteStore

COUNT = 400
ROWS = [(f"{number % 5}", f"{number:04}") for number in range(COUNT)]
"""Ids that are not unique, and bodies that are."""

COLUMNS = "id string, body string"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "PART_MESSAGES", 60)


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make an attempt that dies when it has stored a little."""
    append = SqliteStore.append

    def die(attempt: Callable[..., int], rows: Any) -> None:
        requests = itertools.count()

        def fail(own: Any, request: Any) -> None:
            if next(requests) >= 3:
                raise RuntimeError("the task died here")
            append(own, request)

        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "append", fail)
            with pytest.raises(RuntimeError, match="died here"):
                attempt(rows)

    return die


def shuffled(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return random.Random(3).sample(rows, len(rows))


def bodies(queue: shardq.Queue) -> list[str]:
    return sorted(message.body.decode() for message in queue.peek(10_000))


@pytest.mark.parametrize("job", ["the same job", "a job under its runId"])
@pytest.mark.parametrize("options", [{}, {"idColumn": "body"}], ids=["by content", "by idColumn"])
def test_rows_in_another_order_are_stored_once_though_their_column_id_repeats(
    queue, open_sink, dying, job, options
) -> None:
    options = {"bundleMessages": 10, **options}
    if job != "the same job":
        options["runId"] = "nightly"
    first = open_sink(queue, COLUMNS, **options)
    dying(first, ROWS)
    assert 0 < len(bodies(queue)) < COUNT
    second = first if job == "the same job" else open_sink(queue, COLUMNS, **options)
    second(shuffled(ROWS))
    assert bodies(queue) == [body for _, body in ROWS]
    assert second(ROWS) == 0
    assert bodies(queue) == [body for _, body in ROWS]


@pytest.mark.parametrize("order", ["any", "stable"])
@pytest.mark.parametrize("changed", ["all", "one", "swapped"])
def test_rows_with_other_content_are_refused_though_their_column_id_is_the_same(
    queue, open_sink, order, changed
) -> None:
    rows = list(ROWS)
    if changed == "swapped":  # between two parts of a stable input
        rows[0], rows[-5] = rows[-5], rows[0]
        order = "stable"
    else:
        rows = [
            (name, f"{body} anew") if changed == "all" or body == "0007" else (name, body)
            for name, body in rows
        ]
    attempt = open_sink(queue, COLUMNS, inputOrder=order)
    assert attempt(ROWS) == COUNT
    with pytest.raises(ReplayConflict, match="idColumn"):
        attempt(rows)
    assert set(bodies(queue)) >= {body for _, body in ROWS}


@pytest.mark.parametrize("order", ["any", "stable"])
@pytest.mark.parametrize("distance", [1, 9, 200], ids=["one batch", "one part", "different parts"])
def test_an_id_that_two_rows_have_is_refused_by_name_where_idcolumn_names_it(
    queue, open_sink, order, distance
) -> None:
    rows = [(f"{number}", body) for number, (_, body) in enumerate(ROWS)]
    rows[10 + distance] = ("10", "another one")
    attempt = open_sink(queue, COLUMNS, idColumn="id", inputOrder=order)
    with pytest.raises(
        InvalidMessage, match=r"column 'id' is '10' in two rows of a task.*leave idColumn out"
    ):
        attempt(rows)
    if order == "any":
        assert bodies(queue) == []


@pytest.mark.parametrize("kind", ["bigint", "binary", "string"])
def test_rows_with_ids_are_stored_once_whatever_their_content_becomes(queue, open_sink, dying, kind) -> None:
    def rows(text: str) -> list[tuple[Any, ...]]:
        ids = (number if kind == "bigint" else f"{number}" for number in range(COUNT))
        return [(one.encode() if kind == "binary" else one, f"{text} {one}") for one in ids]

    attempt = open_sink(queue, f"name {kind}, body string", idColumn="name", bundleMessages=10)
    dying(attempt, rows("first"))
    attempt(shuffled(rows("second")))
    assert sorted(int(body.split()[1]) for body in bodies(queue)) == list(range(COUNT))


@pytest.mark.parametrize("order", ["any", "stable"])
@pytest.mark.parametrize("texts", [("." * 100, "."), (".", "." * 100)], ids=["smaller", "larger"])
@pytest.mark.parametrize("strict", [True, False], ids=["a retried task", "a later execution"])
def test_rows_with_ids_are_stored_once_though_their_new_sizes_would_make_other_parts(
    queue, open_sink, dying, monkeypatch, order, texts, strict
) -> None:
    monkeypatch.setattr(spool, "PART_BYTES", 2_000)
    first, second = ([(f"{number}", f"{number:04}{text}") for number in range(COUNT)] for text in texts)
    options = {"idColumn": "id", "inputOrder": order, "bundleMessages": 10, "runId": "nightly"}
    attempt = open_sink(queue, COLUMNS, **options, failOnReplayConflict=strict)
    dying(attempt, first)
    if not strict:
        attempt = open_sink(queue, COLUMNS, **options, failOnReplayConflict=strict)
    attempt(second)
    assert [body[:4] for body in bodies(queue)] == [f"{number:04}" for number in range(COUNT)]
    assert attempt(first) == 0


@pytest.mark.parametrize("order", ["any", "stable"])
def test_no_part_is_begun_before_an_earlier_one_that_the_next_attempt_may_make_larger(
    queue, open_sink, monkeypatch, order
) -> None:
    monkeypatch.setattr(spool, "PART_BYTES", 2_000)
    reserve = SqliteStore.reserve_keys

    def fail(own: Any, name: str, entries: Any, window: int) -> Any:
        if entries[0].key.endswith(":0-0"):
            raise RuntimeError("the task died here")
        return reserve(own, name, entries, window)

    attempt = open_sink(queue, COLUMNS, idColumn="id", inputOrder=order)
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "reserve_keys", fail)
        with pytest.raises(RuntimeError, match="died here"):
            attempt([(f"{number}", f"{number:04}" + "." * 100) for number in range(30)])
    attempt([(f"{number}", f"{number:04}") for number in range(30)])
    assert [body[:4] for body in bodies(queue)] == [f"{number:04}" for number in range(30)]


@pytest.mark.parametrize("order", ["any", "stable"])
@pytest.mark.parametrize(("before", "now"), [(180, 120), (120, 180), (60, 0), (100, 0)])
def test_rows_that_end_after_another_part_than_in_an_earlier_attempt_are_refused(
    queue, open_sink, order, before, now
) -> None:
    rows = ROWS
    if order == "any":  # it sends them in this order
        whole = np.array([body.encode() for _, body in ROWS], dtype=object)
        rows = [ROWS[place] for place in np.argsort(numbers_of(whole), kind="stable")]
    attempt = open_sink(queue, COLUMNS, inputOrder=order)
    attempt(rows[:before])
    with pytest.raises(ReplayConflict, match="more or fewer follow it"):
        attempt(rows[:now])
    assert bodies(queue) == sorted(body for _, body in rows[:before])


def test_a_partition_without_rows_is_no_conflict_unless_an_attempt_had_some(queue, open_sink) -> None:
    attempt = open_sink(queue, COLUMNS)
    assert [attempt([]), attempt(ROWS), attempt(ROWS)] == [0, COUNT, 0]


def test_a_partition_without_rows_is_refused_if_an_attempt_of_a_later_execution_had_some(
    queue, open_sink
) -> None:
    options = {"runId": "nightly", "failOnReplayConflict": False}
    assert open_sink(queue, COLUMNS, **options)(ROWS[:10]) == 10
    attempt = open_sink(queue, COLUMNS, **options)
    assert attempt(ROWS[10:30]) == 20
    with pytest.raises(ReplayConflict, match="more or fewer follow it"):
        attempt([])
    assert open_sink(queue, COLUMNS, **options)([]) == 0


def test_rows_without_an_id_are_identified_by_their_content_though_several_are_alike(
    queue, open_sink, dying
) -> None:
    rows = [(f"{number}" if number % 2 else None, f"{number % 2 and number}") for number in range(COUNT)]
    attempt = open_sink(queue, COLUMNS, idColumn="id", bundleMessages=10)
    dying(attempt, rows)
    attempt(shuffled(rows))
    assert bodies(queue) == sorted(body for _, body in rows)
    rows[0] = (None, "another one")
    with pytest.raises(ReplayConflict):
        attempt(rows)


def test_a_column_id_of_any_type_is_passed_over_unless_it_is_named(queue, send) -> None:
    assert send(queue, "id double, body string", [(0.5, "a"), (0.5, "b")]) == 2


def test_seconds_of_another_role_are_other_rows(queue, open_sink) -> None:
    open_sink(queue, "body string, delay int", runId="nightly")([("a", 60)])
    with pytest.raises(ReplayConflict):
        open_sink(queue, "body string, ttl int", runId="nightly")([("a", 60)])
