"""Commands for a store: schema, backup and restore."""

from __future__ import annotations

from typing import cast

import click

from shardq.base.texts import masked
from shardq.cli.command import ExampleCommand, ExampleGroup, Session, json_option, yes_option
from shardq.cli.printing import many, note, print_json, print_line
from shardq.errors import InvalidSetting, UnsupportedByStore
from shardq.storage.abilities import SavedFile, SavedStore
from shardq.storage.migrations import Migration, migrations

__all__ = ["backup", "restore", "schema", "statements"]


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

    `shardq create` does this automatically. `apply` is for stores in which others create the queues.
    """
    session.client.create_schema()
    note("the schema is applied")


def statements(store: str) -> tuple[Migration, ...]:
    """Return the migrations of a kind of store. An unknown kind is a usage error."""
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


@click.command(cls=ExampleCommand, example="shardq backup backups/queue.db --url sqlite:///queue.db")
@click.argument("file")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@json_option
@click.pass_obj
def backup(session: Session, file: str, overwrite: bool, as_json: bool) -> None:
    """Save all queues of an SQLite file, beside running clients.

    Writes one state of the queues to FILE. FILE appears when the copy has passed an integrity check and is on the disk;
    a file of that name is kept until then. For Cassandra, MongoDB and PostgreSQL use the tools of the server.
    """
    store = _savable(session.store)
    try:
        saved = store.back_up(file, overwrite=overwrite)
    except InvalidSetting:
        session.check_file()
        raise
    _show(saved, as_json, f"saved in {saved.path}")


@click.command(cls=ExampleCommand, example="shardq restore backups/queue.db --yes --url sqlite:///queue.db")
@click.argument("file")
@yes_option
@json_option
@click.pass_obj
def restore(session: Session, file: str, yes: bool, as_json: bool) -> None:
    """Replace an SQLite file by a backup.

    Replaces all queues of the store by those of FILE, which `shardq backup` has written. End all workers and producers
    first: it refuses while any is connected. The backup is checked before anything is changed. After a crash run it
    again. For Cassandra, MongoDB and PostgreSQL use the tools of the server.
    """
    store = _savable(session.quiet_store())
    if not yes:
        click.confirm(
            f"Replace all queues of {masked(session.url)} by those of {file}?", abort=True, err=True
        )
    restored = store.restore(file)
    _show(
        restored,
        as_json,
        f"restored to {restored.path}; messages acked since the backup are delivered again: `shardq doctor --restored` "
        "checks them",
    )


def _savable(store: object) -> SavedStore:
    """Return the store, if shardq itself saves and restores it.

    Raises UnsupportedByStore, which names the right tools.
    """
    savable = cast("SavedStore", store)
    if tools := savable.capabilities.backup_tools:
        raise UnsupportedByStore(
            f"this store is not a file that shardq can save or restore: use {tools}, as the page on backups shows, "
            "with producers and consumers stopped while you restore"
        )
    return savable


def _show(file: SavedFile, as_json: bool, done: str) -> None:
    if as_json:
        print_json(file)
    else:
        note(f"{many(file.queues, 'queue')}, {file.bytes / 1_000_000:.1f} MB {done}")
