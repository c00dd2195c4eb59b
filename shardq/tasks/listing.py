"""Workflows that have begun, as they are listed: with their states and times, as long as they are kept."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar, cast, get_args

import msgspec

from shardq.base.texts import kind_of, shown
from shardq.errors import InvalidSetting
from shardq.settings import check_number
from shardq.tasks.collected import goes_on
from shardq.tasks.gathering import AT_ONCE
from shardq.tasks.ids import run_of
from shardq.tasks.plans import Plan, read_plan
from shardq.tasks.results import Entry

if TYPE_CHECKING:
    from shardq.tasks.binding import Binding

__all__ = ["MOST_LISTED", "WorkflowState", "WorkflowView", "newest_workflows"]

T = TypeVar("T")

MOST_LISTED = 10_000
_PAGE = 50  # workflows whose states are looked up together

WorkflowState = Literal["running", "done", "failed", "cancelled"]


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow was at when it was looked at.

    ``begun`` is when a worker received it, ``ended`` when it was done, or was seen to have failed, by the store's
    clock. What is known of it is kept until ``kept_until``. ``run`` is above 0 when it was retried.

    >>> from shardq.tasks import Tasks, chain
    >>> tasks = Tasks(url)
    >>> @tasks.task
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> result = chain(double.signature(1), double.then()).send(name="nightly")
    >>> ran = tasks.drain()
    >>> [(each.name, each.state) for each in tasks.workflows()]
    [('nightly', 'done')]
    """

    id: str
    name: str
    state: WorkflowState
    queue: str
    begun: datetime
    kept_until: datetime
    ended: datetime | None = None
    run: int = 0
    failure: str | None = None


class _Begun(msgspec.Struct, frozen=True):
    """A workflow whose state was not looked up."""

    view: WorkflowView
    plan: Plan


def newest_workflows(
    binding: Binding,
    *,
    state: WorkflowState | None = None,
    name: str | None = None,
    queues: Sequence[str] | None = None,
    limit: int = 100,
) -> list[WorkflowView]:
    """The newest workflows of a state, of a name and of queues. Holds no more than ``limit`` of them in memory."""
    check_number("limit", limit, 1, MOST_LISTED, whole=True)
    if state is not None and state not in get_args(WorkflowState):
        raise InvalidSetting(
            f"state={shown(state)} of workflows: give one of {', '.join(get_args(WorkflowState))}"
        )
    if not isinstance(name, str | None):
        raise InvalidSetting(f"name={shown(name)} of workflows is {kind_of(name)}: give a str")
    found = (
        each
        for each in _begun(binding)
        if (name is None or each.view.name == name) and (queues is None or each.view.queue in queues)
    )
    if state is None:
        return list(_with_states(binding, _newest(found, limit, lambda each: each.view)))
    looked_up = (each for each in _with_states(binding, found) if each.state == state)
    return _newest(looked_up, limit, lambda view: view)


def _newest(found: Iterable[T], limit: int, view_of: Callable[[T], WorkflowView]) -> list[T]:
    """The newest of them, each once."""

    def age(each: T) -> tuple[datetime, str]:
        view = view_of(each)
        return view.begun, view.id

    kept: dict[str, T] = {}
    for each in found:
        kept[view_of(each).id] = each
        if len(kept) >= 2 * limit:
            kept = {view_of(one).id: one for one in heapq.nlargest(limit, kept.values(), key=age)}
    return heapq.nlargest(limit, kept.values(), key=age)


def _begun(binding: Binding) -> Iterator[_Begun]:
    for workflow, message in binding.results.workflows():
        plan = read_plan(cast("bytes", message.body))
        view = WorkflowView(
            id=workflow,
            name=plan.name,
            state="running",
            queue=workflow.partition(":")[0],
            begun=message.enqueued_at,
            kept_until=message.due,
        )
        yield _Begun(view, plan)


def _with_states(binding: Binding, found: Iterable[_Begun]) -> Iterator[WorkflowView]:
    drawn = iter(found)
    while page := list(islice(drawn, _PAGE)):
        runs = binding.results.last_runs([each.view.id for each in page])
        for each, run in zip(page, runs, strict=True):
            yield _looked_up(binding, each, run)


def _looked_up(binding: Binding, found: _Begun, run: str) -> WorkflowView:
    """It has failed, or was cancelled, as soon as one of its ends is; it is done when all are."""
    entries = list(_entries(binding, run, found.plan.ends))
    ended = [each for each in entries if each is not None]
    failed = [
        each
        for end, each in zip(found.plan.ends, entries, strict=True)
        if each is not None and not goes_on(found.plan, end, each[0])
    ]
    view = msgspec.structs.replace(found.view, run=run_of(run))
    if failed:
        entry, when = min(failed, key=lambda each: (each[0].state != "failed", each[1]))
        return msgspec.structs.replace(view, state=entry.state, ended=when, failure=_text(entry))
    if len(ended) < len(entries):
        return view
    return msgspec.structs.replace(
        view, state="done", ended=max((when for _, when in ended), default=view.begun)
    )


def _text(entry: Entry) -> str | None:
    return None if entry.failure is None else str(entry.failure)


def _entries(binding: Binding, run: str, ends: Sequence[int]) -> Iterator[tuple[Entry, datetime] | None]:
    """What became of the ends, without their values, and when."""
    for place in range(0, len(ends), AT_ONCE):
        steps = [f"{run}#{end}" for end in ends[place : place + AT_ONCE]]
        dated = binding.results.dated(steps)
        yield from (_without_value(dated.get(step)) for step in steps)


def _without_value(found: tuple[Entry, datetime] | None) -> tuple[Entry, datetime] | None:
    return None if found is None else (msgspec.structs.replace(found[0], value=b""), found[1])
