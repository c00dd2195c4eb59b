"""``shardq semaphore``."""

from __future__ import annotations

import click
import msgspec

from shardq.cli.command import ReadCommand, Session, json_option
from shardq.cli.printing import print_columns, print_json
from shardq.cli.times import duration
from shardq.client import Client
from shardq.client.semaphore import PERMIT_LEASE_SECONDS, Semaphore
from shardq.errors import InvalidSetting, QueueNotFound

__all__ = ["opened", "semaphore"]


@click.command(cls=ReadCommand, example="shardq semaphore smtp --permits 16")
@click.argument("name", metavar="NAME")
@click.option("--permits", type=int, help="Create the semaphore, or change its number of permits.")
@click.option(
    "--lease",
    type=duration,
    help=f"Of a new one: after this time the permit of a dead holder comes back.  [{PERMIT_LEASE_SECONDS:g}]",
)
@json_option
@click.pass_obj
def semaphore(
    session: Session, /, name: str, permits: int | None, lease: float | None, as_json: bool
) -> None:
    """Show, create or change a semaphore.

    Its permits are the messages of the queue _shardq/permits/NAME. Delete that queue to delete the semaphore.
    """
    session.only_reads = permits is None
    state = opened(session.client, name, permits, lease).state()
    if as_json:
        print_json(state)
    else:
        print_columns([(fact, str(value)) for fact, value in msgspec.structs.asdict(state).items()])


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
