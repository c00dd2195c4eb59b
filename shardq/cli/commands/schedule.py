"""``shardq schedule``: the schedules of queues."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import msgspec

from shardq.cli.command import (
    ExampleGroup,
    ReadCommand,
    Session,
    complete_queues,
    json_option,
    queue_argument,
)
from shardq.cli.printing import note, print_columns, print_json, print_line
from shardq.cli.times import coming_moment, duration
from shardq.schedules import Schedule

__all__ = ["schedule"]

_F = TypeVar("_F", bound=Callable[..., Any])

schedule = ExampleGroup(
    name="schedule",
    help=(
        "Send messages at fixed times or at intervals.\n\nThe consumers of a schedule's queue keep it going: "
        "also workers and `shardq work`."
    ),
    example='shardq schedule create nightly reports --cron "30 2 * * *" --time-zone Europe/Berlin --body sales\n'
    "shardq schedule list",
)

_id = click.argument("id", metavar="ID")


def _options(command: _F) -> _F:
    """Add the options of a schedule."""
    for option in reversed(
        (
            click.option("--cron", help="A cron expression, or @daily and the like."),
            click.option("--every", type=duration, help="The time between occurrences."),
            click.option("--at", type=coming_moment, metavar="MOMENT", help="Once: ISO 8601, or a duration from now."),
            click.option("--time-zone", metavar="ZONE", help="The time zone of a cron expression.  [UTC]"),
            click.option("--until", type=coming_moment, metavar="MOMENT", help="No occurrence after that."),
            click.option("--count", type=int, help="The number of messages after which it ends."),
            click.option("--overlap", type=click.Choice(["allow", "skip"]), help="Occurrences while the last "
            "message waits.  [allow]"),
            click.option("--catch-up", type=click.Choice(["one", "none"]), help="Missed occurrences: the last "
            "one, or none.  [one]"),
            click.option("--body", help="The body of the messages."),
            click.option("--priority", type=int, help="Their priority, 0 first.  [5]"),
            click.option("--group", help="Their group."),
            click.option("--ttl", type=duration, help="They are not delivered after this time."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


@schedule.command(example="shardq schedule create poll jobs --every 90s --overlap skip")
@_id
@queue_argument
@click.option("--exist-ok", is_flag=True, help="Accept a schedule that exists. It is not changed.")
@_options
@json_option
@click.pass_obj
def create(session: Session, /, id: str, queue: str, exist_ok: bool, as_json: bool, **given: Any) -> None:  # noqa: A002
    """Create a schedule that sends to QUEUE."""
    made = session.client.schedules.create(id, queue=queue, exist_ok=exist_ok, **_chosen(given))
    _show(made, as_json=as_json)


@schedule.command(example='shardq schedule alter nightly --cron "0 3 * * *"')
@_id
@_options
@json_option
@click.pass_obj
def alter(session: Session, /, id: str, as_json: bool, **given: Any) -> None:  # noqa: A002
    """Change the given options of a schedule."""
    _show(session.client.schedules.alter(id, **_chosen(given)), as_json=as_json)


@schedule.command("list", cls=ReadCommand, example="shardq schedule list reports")
@click.argument("queue", metavar="[QUEUE]", required=False, shell_complete=complete_queues)
@json_option
@click.pass_obj
def list_schedules(session: Session, /, queue: str | None, as_json: bool) -> None:
    """List the schedules, or those of QUEUE."""
    found = session.client.schedules.list(queue)
    if as_json:
        print_json({"schedules": found})
    elif found:
        print_columns([("schedule", "queue", "when", "next", "sent"), *map(_row, found)])


@schedule.command("show", cls=ReadCommand, example="shardq schedule show nightly")
@_id
@json_option
@click.pass_obj
def show(session: Session, /, id: str, as_json: bool) -> None:  # noqa: A002
    """Show a schedule."""
    _show(session.client.schedules.get(id), as_json=as_json)


@schedule.command(example="shardq schedule pause nightly")
@_id
@click.pass_obj
def pause(session: Session, /, id: str) -> None:  # noqa: A002
    """Stop the occurrences until it is resumed."""
    session.client.schedules.pause(id)
    note(f"schedule {id} is paused")


@schedule.command(example="shardq schedule resume nightly")
@_id
@click.pass_obj
def resume(session: Session, /, id: str) -> None:  # noqa: A002
    """Continue with the next occurrence."""
    session.client.schedules.resume(id)
    note(f"schedule {id} continues")


@schedule.command(example="shardq schedule trigger nightly")
@_id
@click.pass_obj
def trigger(session: Session, /, id: str) -> None:  # noqa: A002
    """Send the message now; prints its id."""
    print_line(session.client.schedules.trigger(id))


@schedule.command(example="shardq schedule delete nightly")
@_id
@click.pass_obj
def delete(session: Session, /, id: str) -> None:  # noqa: A002
    """Delete a schedule. Messages that were sent stay."""
    session.client.schedules.delete(id)
    note(f"schedule {id} is deleted")


def _chosen(given: dict[str, Any]) -> dict[str, Any]:
    chosen = {name: value for name, value in given.items() if value is not None}
    if "body" in chosen:
        chosen["body"] = chosen["body"].encode("utf-8", "surrogateescape")
    return chosen


def _show(found: Schedule, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        facts = msgspec.structs.asdict(found).items()
        print_columns(
            [(fact.replace("_", " "), _text(value)) for fact, value in facts if value not in (None, {}, b"")]
        )


def _row(found: Schedule) -> tuple[object, ...]:
    every = None if found.every is None else f"every {found.every:g} s"
    when = found.cron or every or _text(found.at)
    following = "paused" if found.paused else "over" if found.next is None else _text(found.next)
    return found.id, found.queue, when, following, found.sent


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
