"""Options that select messages, for the commands that take a filter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shardq.cli.command import headers_option
from shardq.cli.printing import many, note
from shardq.cli.times import past_moment

if TYPE_CHECKING:
    from shardq.core.selecting import MessageFilter

__all__ = ["Progress", "held_options", "selected_filter", "selection_options"]

_F = TypeVar("_F", bound=Callable[..., Any])

_STEP = 1_000
"""Messages after which progress is shown."""

_OPTIONS = (
    headers_option,
    click.option("--group", help="Only messages of this group."),
    click.option(
        "--reason", metavar="TEXT", help="Only messages whose reason has this text in it, in the same case."
    ),
    click.option("--since", type=past_moment, metavar="MOMENT", help="Only from this moment on."),
    click.option("--until", type=past_moment, metavar="MOMENT", help="Only from before this moment."),
)


def selection_options(command: _F) -> _F:
    """Give a command the options by which messages are selected."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def held_options(command: _F) -> _F:
    """Give a command the options by which messages in flight are selected."""
    owner = click.option("--owner", help="Only messages that the consumer of this name or id holds.")
    in_flight = click.option("--in-flight", is_flag=True, help="Only messages in flight.")
    return in_flight(owner(command))


def selected_filter(
    *,
    headers: dict[str, str] | None,
    group: str | None,
    reason: str | None,
    since: datetime | None,
    until: datetime | None,
    in_flight: bool = False,
    blocked: bool = False,
    owner: str | None = None,
    by_due: bool = False,
) -> MessageFilter | None:
    """Return the filter of the options; None if none is given. With ``by_due`` a moment is when messages are due."""
    from shardq.core.selecting import MessageFilter  # noqa: PLC0415 - the help needs none of these

    if not (headers or in_flight or blocked) and (group, reason, since, until, owner) == (None,) * 5:
        return None
    moments: dict[str, Any] = (
        {"due_since": since, "due_until": until} if by_due else {"sent_since": since, "sent_until": until}
    )
    return MessageFilter(
        headers=headers,
        group=group,
        reason=reason,
        in_flight=in_flight,
        blocked=blocked,
        owner=owner,
        **moments,
    )


class Progress:
    """Tells on stderr, now and then, how many messages were done so far."""

    def __init__(self, past: str) -> None:
        self._past, self._reported = past, 0

    def __call__(self, number: int) -> None:
        """Print the number if it has grown enough."""
        if number >= self._reported + _STEP:
            self._reported = number
            note(f"{many(number, 'message')} {self._past} so far")
