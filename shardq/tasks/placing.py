"""Sending the first steps of a workflow or bucket in bundles: where each is stored is written down before.

A step that another one sends has a unique key, which costs as much as its message. The first steps are sent by who
begins the workflow, and nobody else. So their messages are planned, their ids are written once as an entry, and they
are stored under these ids, however often, and by whomever, the begin is repeated: a store leaves alone what it has, and
what was finished in the last minutes. Who repeats it later than that looks which are there, and which have ended, and
sends the others with keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from shardq.base.outgoing_message import OutgoingMessage
from shardq.queue_internals import placed
from shardq.tasks.places import Place, Places, are_enough, write_places
from shardq.tasks.plans import Plan

if TYPE_CHECKING:
    from shardq.tasks.binding import Binding

__all__ = ["sent_in_places"]

MOST_BYTES = 1_000_000  # of their bodies together


def sent_in_places(binding: Binding, workflow: str, plan: Plan, bodies: Mapping[int, bytes | None]) -> bool:
    """Store the messages of first steps under ids that are written down; False when they are to be sent otherwise.

    May be repeated. Raises RepeatTooLate when they may have been stored more than 14 minutes ago.
    """
    if not _is_worth_it(binding, plan, bodies):
        return False
    messages = {
        number: msgspec.structs.replace(
            plan.steps[number].message(workflow, number, plan.keep, body), unique_key=None
        )
        for number, body in bodies.items()
    }
    by_queue = _by_queue(plan, list(bodies))
    places = binding.results.places(workflow) or _written(binding, workflow, plan, by_queue, messages)
    if places is None or not places.keys() >= bodies.keys():
        return False
    for queue, numbers in by_queue.items():
        binding.send(queue, [_in_place(messages[number], places[number]) for number in numbers])
    return True


def _is_worth_it(binding: Binding, plan: Plan, bodies: Mapping[int, bytes | None]) -> bool:
    """True for some steps that fit into a bundle. A queue with bounds may take a part of them only."""
    return (
        are_enough(bodies)
        and sum(len(body or plan.steps[number].body) for number, body in bodies.items()) <= MOST_BYTES
        and all(plan.steps[number].group is None for number in bodies)
        and not any(
            binding.settings(queue, {plan.steps[number].task for number in numbers}).is_bounded
            for queue, numbers in _by_queue(plan, list(bodies)).items()
        )
    )


def _written(
    binding: Binding,
    workflow: str,
    plan: Plan,
    by_queue: Mapping[str, Sequence[int]],
    messages: Mapping[int, OutgoingMessage],
) -> Places | None:
    """Write down where the messages are to be stored; returns what is written, maybe by somebody else."""
    planned: Places = {}
    for queue, numbers in by_queue.items():
        found = placed(binding.queue(queue), [messages[number] for number in numbers])
        planned |= {
            number: Place(str(each.id), each.due)
            for number, each in zip(numbers, found, strict=True)
            if each.due is not None
        }
    binding.results.enter_places(workflow, write_places(planned), plan.keep)
    return binding.results.places(workflow)


def _in_place(message: OutgoingMessage, place: Place) -> OutgoingMessage:
    return msgspec.structs.replace(message, id=place.id, due=place.due, delay=0.0)


def _by_queue(plan: Plan, numbers: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number in numbers:
        found.setdefault(plan.steps[number].queue, []).append(number)
    return found
