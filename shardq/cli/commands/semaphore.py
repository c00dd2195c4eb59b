"""``shardq semaphore``."""

from __future__ import annotations

import click
import msgspec

from shardq.cli.command import ExampleCommand, Session, json_option
from shardq.cli.printing import print_columns, print_json
from shardq.cli.times import duration
from shardq.client import Client
from shardq.semaphore import PERMIT_LEASE_SECONDS, Semaphore

__all__ = ["opened", "semaphore"]


@click.command(cls=ExampleCommand, example="shardq semaphore smtp --permits 16")
@click.argument("name", metavar="NAME")
@click.option("--permits", type=int, help="Create the semaphore, or change its number of permits.")
@click.option(
    "--lease",
    type=duration,
    default=PERMIT_LEASE_SECONDS,
    help=f"Of a new one: after this time the permit of a dead holder comes back.  [{PERMIT_LEASE_SECONDS:g}]",
)
@json_option
@click.pass_obj
def semaphore(session: Session, /, name: str, permits: int | None, lease: float, as_json: bool) -> None:
    """Show, create or change a semaphore.

    Its permits are the messages of the queue NAME.permits. Delete that queue to delete the semaphore.
    """
    state = opened(session.client, name, permits, lease).state()
    if as_json:
        print_json(state)
    else:
        print_columns([(fact, str(value)) for fact, value in msgspec.structs.asdict(state).items()])


def opened(client: Client, name: str, permits: int | None, lease: float) -> Semaphore:
    """Open a semaphore, with so many permits if they are given."""
    found = client.semaphore(name, permits=permits, lease=lease)
    if permits is not None and found.permits != permits:
        found.alter(permits=permits)
    return found
