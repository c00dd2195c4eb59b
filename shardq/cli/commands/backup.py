"""``shardq backup`` and ``shardq restore``."""

from __future__ import annotations

from typing import cast

import click

from shardq.cli.command import ExampleCommand, Session, json_option, yes_option
from shardq.cli.printing import many, note, print_json
from shardq.errors import InvalidSetting, UnsupportedByStore
from shardq.storage.abilities import SavedFile, SavedStore
from shardq.wording import masked

__all__ = ["backup", "restore"]


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
        restored, as_json, f"restored to {restored.path}; messages acked since the backup are delivered again"
    )


def _savable(store: object) -> SavedStore:
    """The store, if shardq itself saves and restores it. Raises UnsupportedByStore, which names what does."""
    savable = cast("SavedStore", store)
    if tools := savable.capabilities.backup_tools:
        raise UnsupportedByStore(
            f"this store is not a file that shardq can save or restore: use {tools}, with producers and consumers "
            "stopped while you restore"
        )
    return savable


def _show(file: SavedFile, as_json: bool, done: str) -> None:
    if as_json:
        print_json(file)
    else:
        note(f"{many(file.queues, 'queue')}, {file.bytes / 1_000_000:.1f} MB {done}")
