"""Forwards of a message that nobody holds.

A span of one message under `PENDING`, the only one of its request, names a message in the shard to which is appended.
That message is not held, or its lease has expired. It MUST be lost if somebody holds it by then. A store that cannot do
that, or not for groups, MUST raise UnsupportedByStore with nothing changed.
"""

from __future__ import annotations

from msgspec.structs import replace

from shardq.storage.requests import Acknowledge, Fenced, Span

__all__ = ["PENDING", "pending_in", "renamed"]

PENDING = b"shardq: pending!"
"""The token by which a forward names a message that nobody holds."""


def pending_in(request: Acknowledge) -> Span | None:
    """Return the span under `PENDING`; None for a request of messages that are held."""
    return request.spans[0] if len(request.spans) == 1 and request.spans[0].token == PENDING else None


def renamed(request: Acknowledge, answer: Fenced) -> Fenced:
    """Return the answer to a request, with its spans under `PENDING` if those of the request are."""
    if pending_in(request) is None:
        return answer
    lost, gone = (tuple(replace(span, token=PENDING) for span in each) for each in (answer.lost, answer.gone))
    return Fenced(lost, gone)
