"""``shardq schema``."""

from __future__ import annotations

import click

from shardq.cli.command import ExampleGroup, Session, json_option
from shardq.cli.printing import note, print_json, print_line
from shardq.storage.migrations import Migration, migrations

__all__ = ["schema", "statements"]


@click.group(cls=ExampleGroup, example="shardq schema print --store sqlite")
def schema() -> None:
    """Print or apply the schema of a store."""


@schema.command("print", example="shardq schema print --store sqlite > schema.sql")
@click.option("--store", help="The kind of store. Default: the one of the URL.")
@json_option
@click.pass_obj
def print_schema(session: Session, store: str | None, as_json: bool) -> None:
    """Print the numbered files of a store's schema, in order."""
    found = statements(store or session.url.partition(":")[0])
    if as_json:
        print_json({"migrations": found})
        return
    for migration in found:
        print_line(f"-- {migration.number:04d}_{migration.name}")
        print_line(migration.text.rstrip("\n"))


@schema.command(example="shardq --url sqlite:///queue.db schema apply")
@click.pass_obj
def apply(session: Session) -> None:
    """Bring the store's schema to this version of shardq.

    `shardq create` does this by itself. `apply` is for stores in which somebody else creates the queues.
    """
    session.client.create_schema()
    note("the schema is applied")


def statements(store: str) -> tuple[Migration, ...]:
    """The migrations of a kind of store. An unknown kind is a usage error."""
    try:
        found = migrations(store) if store.isalnum() else ()
    except FileNotFoundError:
        found = ()
    if not found:
        raise click.BadParameter(
            f"there is no schema for {store!r}: give cassandra, mongodb, postgresql or sqlite.",
            param_hint="--store",
        )
    return found
