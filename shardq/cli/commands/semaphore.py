"""``shardq semaphore``."""

from __future__ import annotations

import click
import msgspec

from shardq.cli.command import ReadCommand, Session, json_option, read_each
from shardq.cli.printing import print_columns, print_json
from shardq.cli.times import duration
from shardq.client import Client
from shardq.client.semaphore import PERMIT_LEASE_SECONDS, Semaphore, SemaphoreState
from shardq.core.limits.permits import PERMITS_FOLDER
from shardq.errors import InvalidSetting, QueueNotFound

__all__ = ["opened", "semaphore"]


@click.command(cls=ReadCommand, example="shardq semaphore smtp --permits 16")
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--permits", type=int, help="Create the semaphore, or change its number of permits.")
@click.option(
    "--lease",
    type=duration,
    help=f"Of a new one: after this time the permit of a dead holder comes back.  [{PERMIT_LEASE_SECONDS:g}]",
)
@json_option
@click.pass_obj
def semaphore(
    session: Session, /, name: str | None, permits: int | None, lease: float | None, as_json: bool
) -> None:
    """Show, create or change a semaphore.

    Without NAME it lists all semaphores. The permits of one are the messages of the queue _shardq/permits/NAME. To
    delete a semaphore, delete that queue.
    """
    session.only_reads = permits is None
    if name is None:
        if not (permits is lease is None):
            raise click.UsageError("Missing argument 'NAME'.")
        _list(session, as_json=as_json)
        return
    state = opened(session.client, name, permits, lease).state()
    if as_json:
        print_json(state)
    else:
        print_columns([(fact, str(value)) for fact, value in msgspec.structs.asdict(state).items()])


def _list(session: Session, *, as_json: bool) -> None:
    """List the semaphores. The permits of a queue's limits are stored beside them, in queues without max_in_flight."""
    client = session.client
    stored = read_each(client.queues(PERMITS_FOLDER), client.queue, session.skipped_errors)
    names = [each.name.removeprefix(PERMITS_FOLDER) for each in stored if each.settings.max_in_flight]
    states = list(read_each(names, lambda name: client.semaphore(name).state()))
    if not states:
        session.check_file()
    if as_json:
        print_json({"semaphores": states})
    else:
        print_columns([SemaphoreState.__struct_fields__, *map(msgspec.structs.astuple, states)])


def opened(client: Client, name: str, permits: int | None, lease: float | None) -> Semaphore:
    """Open a semaphore, created with ``permits`` if they are given. Raises InvalidSetting if it has another lease."""
    try:
        found = client.semaphore(name)
    except QueueNotFound:
        if permits is None:
            raise
        found = client.semaphore(name, permits=permits, lease=lease)
    if lease not in (None, found.lease):
        raise InvalidSetting(
            f"lease={lease:g}: semaphore {name!r} exists with a lease of {found.lease:g} seconds, which cannot change: "
            "leave --lease out"
        )
    if permits is not None and found.permits != permits:
        found.alter(permits=permits)
    return found
