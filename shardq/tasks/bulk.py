"""Sending many calls: some thousands are drawn at a time, and those of one queue are stored in bundles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from shardq.base.outgoing_message import OutgoingMessage
from shardq.base.texts import kind_of, shown
from shardq.errors import InvalidSetting, PartialSend
from shardq.tasks.result import Result
from shardq.tasks.task import Signature

if TYPE_CHECKING:
    from shardq.tasks.binding import Binding

__all__ = ["send_calls"]

T = TypeVar("T")

CALLS_AT_ONCE = 2_000


def send_calls(binding: Binding, calls: Iterable[Signature[T]]) -> list[Result[T]]:
    """Send calls of any tasks; returns their results in order. Raises as :meth:`Tasks.send_many` says."""
    drawn, results = _checked(calls), list[Result[T]]()
    while some := _draw(drawn, results):
        ids = _send(binding, some, results)
        results += [
            Result(binding, identity, call.task, call.options.keep_result)
            for identity, call in zip(ids, some, strict=True)
        ]
    return results


def _checked(calls: Iterable[Signature[T]]) -> Iterator[Signature[T]]:
    if isinstance(calls, Signature) or not isinstance(calls, Iterable):
        raise InvalidSetting(f"{kind_of(calls)} is no list of calls: give several, or an iterator of them")
    for call in calls:
        if not isinstance(call, Signature):
            raise InvalidSetting(f"{shown(call)} is no call: give what task.signature(...) returns")
        call.check_whole()
        yield call


def _draw(calls: Iterator[Signature[T]], sent: Sequence[Result[T]]) -> list[Signature[T]]:
    some: list[Signature[T]] = []
    try:
        for call in calls:
            some.append(call)
            if len(some) >= CALLS_AT_ONCE:
                break
    except Exception as error:
        if not sent:
            raise
        raise _partial(error, _ids(sent), [call.message() for call in some]) from error
    return some


def _send(binding: Binding, calls: Sequence[Signature[T]], sent: Sequence[Result[T]]) -> list[str]:
    """Store the calls, those of one queue together; returns their ids in order."""
    by_queue: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        by_queue.setdefault(call.options.queue, []).append(place)
    found: dict[int, str] = {}
    messages = [call.message() for call in calls]
    for queue, places in by_queue.items():
        try:
            ids = binding.send(queue, [messages[place] for place in places])
        except Exception as error:
            if not (sent or found):
                raise
            stored = [*_ids(sent), *(found[place] for place in sorted(found))]
            others = [each for place, each in enumerate(messages) if place not in {*found, *places}]
            raise _partial(error, stored, others, [messages[place] for place in places]) from error
        found |= zip(places, ids, strict=True)
    return [found[place] for place in range(len(calls))]


def _ids(sent: Sequence[Result[T]]) -> list[str]:
    return [result.id for result in sent]


def _partial(
    error: Exception,
    stored: Sequence[str],
    others: Sequence[OutgoingMessage],
    tried: Sequence[OutgoingMessage] = (),
) -> PartialSend:
    """The error that names all calls that are stored, and those that were drawn and are not."""
    stopped = error.__cause__ if isinstance(error, PartialSend) else error
    if isinstance(error, PartialSend):
        stored, tried = [*stored, *error.stored], error.unsent
    else:
        left = getattr(error, "unsent", None)
        tried = [left] if isinstance(left, OutgoingMessage) else tried
    unsent = [*tried, *others]
    text = f"{len(stored)} calls are stored, and {len(unsent)} that were drawn are not: {stopped}"
    return PartialSend(f"{text}; give `error.unsent` to producers of their queues", stored, unsent)
