"""``shardq edit``: change a message that waits."""

from __future__ import annotations

from datetime import datetime
from typing import BinaryIO

import click

from shardq.base.receipt import MessageId
from shardq.cli.command import ExampleCommand, Session, headers_option, json_option
from shardq.cli.printing import note, print_json, print_line
from shardq.cli.times import coming_moment, duration

__all__ = ["edit"]


@click.command(
    cls=ExampleCommand,
    example="shardq edit orders:3:1:0197c8a2b4d07abc8123456789abcdef:0 --priority 0 --delay 0\n"
    "shardq edit orders:3:1:0197c8a2b4d07abc8123456789abcdef:0 --body-file order.json",
)
@click.argument("message_id", metavar="ID")
@click.option("--body", metavar="TEXT", help="The body from now on.")
@click.option("--body-file", type=click.File("rb"), metavar="FILE", help="A file with the body; - is stdin.")
@headers_option
@click.option("--no-headers", is_flag=True, help="The message has no headers from now on.")
@click.option("--priority", type=int, help="0 is delivered first, 9 last.")
@click.option("--delay", type=duration, help="Deliver after this time; 0: now.")
@click.option(
    "--due", type=coming_moment, metavar="MOMENT", help="Deliver at this moment: ISO 8601, or a duration."
)
@json_option
@click.pass_obj
def edit(
    session: Session,
    message_id: str,
    body: str | None,
    body_file: BinaryIO | None,
    headers: dict[str, str] | None,
    no_headers: bool,
    priority: int | None,
    delay: float | None,
    due: datetime | None,
    as_json: bool,
) -> None:
    """Change a pending message, and print its new id.

    Properties without an option stay as they are. Headers are replaced all together. A message that is in flight,
    processed or gone is refused, also when a consumer receives it at the same moment.
    """
    if body is not None and body_file is not None:
        raise click.UsageError("Give one of --body and --body-file.")
    if headers and no_headers:
        raise click.UsageError("Give one of --header and --no-headers.")
    content = body_file.read() if body_file is not None else None
    changed = session.queue(MessageId.parse(message_id).shard.queue).edit(
        message_id,
        body=body.encode("utf-8", "surrogateescape") if body is not None else content,
        headers={} if no_headers else headers,
        priority=priority,
        due=due,
        delay=delay,
    )
    if as_json:
        print_json({"id": changed})
    else:
        print_line(changed)
        note("the message is edited")
