"""``shardq remove``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
import msgspec

from shardq.cli.example import ExampleCommand
from shardq.cli.failures import NOT_FOUND
from shardq.cli.options import json_option
from shardq.cli.printing import many, note, print_json
from shardq.cli.session import Session
from shardq.cli.words import given_words
from shardq.receipt import MessageId

__all__ = ["Removal", "remove", "remove_all"]


class Removal(msgspec.Struct, frozen=True):
    """What became of ids that were to be removed."""

    removed: int
    missing: Sequence[str]


@click.command(cls=ExampleCommand, example="shardq peek orders --json | jq -r .id | shardq remove -")
@click.argument("ids", metavar="ID...", nargs=-1)
@json_option
@click.pass_context
def remove(ctx: click.Context, ids: tuple[str, ...], as_json: bool) -> None:
    """Remove messages by their ids.

    For good, in any state, in flight and processed too: a consumer that holds one finds nothing left to ack.
    With - or without an id they are read from stdin, the first word of each line. Ids come from `send` and
    `peek`; the exit code is 3 when one is not stored.
    """
    removal = remove_all(ctx.ensure_object(Session), given_words(ids))
    if as_json:
        print_json(removal)
    else:
        note(f"{many(removal.removed, 'message')} removed")
    if removal.missing:
        missing = removal.missing
        note(f"shardq: message_not_found: {many(len(missing), 'message')} not stored, first {missing[0]}")
        ctx.exit(NOT_FOUND)


def remove_all(session: Session, ids: Iterable[str]) -> Removal:
    """Remove each of them from the queue that its id names; all ids are read before the first is removed."""
    parsed = [MessageId.parse(text) for text in ids]
    missing = [
        str(identity) for identity in parsed if not session.queue(identity.shard.queue).remove(str(identity))
    ]
    return Removal(len(parsed) - len(missing), missing)
