"""``shardq``: the entry point of the command line."""

from __future__ import annotations

import click

from shardq.cli.program import Program
from shardq.cli.session import Session

__all__ = ["main"]

DEFAULT_URL = "sqlite:///shardq.db"


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    example="shardq create orders\nshardq send orders hello\nshardq receive orders",
)
@click.option(
    "--url",
    envvar="SHARDQ_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="The store: sqlite:///FILE, or another that is installed.",
)
@click.version_option(package_name="shardq", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, url: str) -> None:
    """Queues that are spread over the shards of a wide-row store.

    Exit codes: 0 done, 1 failure, 2 wrong usage, 3 not found, 4 the store is unavailable.
    """
    session = Session(url)
    ctx.obj = session
    ctx.call_on_close(session.close)
