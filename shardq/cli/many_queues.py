"""Commands on all queues that a pattern matches: a preview, a question, and one queue after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import click

from shardq.base.patterns import is_pattern
from shardq.cli.command import Session, read_each
from shardq.cli.declarations import change_text, settings_difference
from shardq.cli.failures import exit_code_of_all
from shardq.cli.printing import many, note, print_json
from shardq.client.queue import Queue
from shardq.errors import QueueNotFound, ShardqError

__all__ = ["Operation", "changes_of", "matching", "on_each"]

T = TypeVar("T")


class Operation(NamedTuple, Generic[T]):
    """The change that a command makes to each queue, and its texts."""

    question: str  # before the number of queues, as "Purge"
    past: str  # as "purged": what was done, in JSON too
    preview: Callable[[Queue], str]  # what it would change in a queue; "": nothing, so the queue is left out
    do: Callable[[Queue], T]
    line: Callable[[str, T], str]  # of the queue's name and the result, for people


def matching(session: Session, pattern: str) -> tuple[str, ...]:
    """Return the queues that a pattern matches, or the one that it names. Raises QueueNotFound when there are none."""
    if not is_pattern(pattern):
        return (session.queue(pattern).name,)
    names = session.client.pattern(pattern).names()
    if not names:
        session.check_file()
        raise QueueNotFound(
            f"no queue matches {pattern!r}: `shardq list` shows the queues; no pattern matches one for dead letters"
        )
    return names


def on_each(session: Session, pattern: str, operation: Operation[T], *, yes: bool, as_json: bool) -> None:
    """Do it to a queue, or each that a pattern matches, once the changes were shown on stderr and confirmed.

    A queue that fails keeps no other one from being done. The exit code is that of its error, or 1 if several differ.
    A queue that was deleted meanwhile is left out. JSON has the result of each queue, or of the only one that is named.
    """
    several = is_pattern(pattern)
    names, queue_of = matching(session, pattern), session.client.queue
    opened = {queue.name: queue for queue in read_each(names, queue_of, session.skipped_errors)}
    previews = read_each(opened, lambda name: (name, operation.preview(opened[name])))
    chosen = [(name, text) for name, text in previews if text]
    for name, text in chosen:
        note(f"  {name}: {text}")
    if chosen and not yes:
        what = many(len(chosen), "queue") if several else f"queue {pattern}"
        click.confirm(f"{operation.question} {what}?", abort=True, err=True)
    done: dict[str, T] = {}
    failed: dict[str, ShardqError] = {}
    for name, _ in chosen:
        try:
            done[name] = operation.do(queue_of(name))
        except ShardqError as error:
            if not several:
                raise
            if isinstance(error, QueueNotFound):
                continue
            failed[name] = error
            note(f"queue {name} was not {operation.past}: {error}")
    if as_json:
        errors = {name: {"code": error.code, "error": str(error)} for name, error in failed.items()}
        print_json(
            {operation.past: done, "failed": errors} if several else {operation.past: done.get(pattern, 0)}
        )
    else:
        for name, result in done.items():
            note(operation.line(name, result))
        if not chosen:
            note(f"nothing to change in {many(len(names), 'queue')}")
    if failed:
        click.get_current_context().exit(exit_code_of_all(failed.values()))


def changes_of(queue: Queue, *, wanted: Mapping[str, Any]) -> str:
    """Return in words the changes that these settings would make to a queue; "" for none."""
    difference = settings_difference(queue.name, queue.settings, wanted)
    return "" if difference is None else change_text(difference)
