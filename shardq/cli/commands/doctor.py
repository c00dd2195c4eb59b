"""``shardq doctor``."""

from __future__ import annotations

import click

from shardq.cli.checkup import Check, examine
from shardq.cli.example import ExampleCommand
from shardq.cli.failures import FAILURE
from shardq.cli.options import json_option
from shardq.cli.printing import many, note, print_columns, print_json
from shardq.cli.session import Session

__all__ = ["doctor"]


@click.command(cls=ExampleCommand, example="shardq doctor orders")
@click.argument("queue", required=False)
@json_option
@click.pass_context
def doctor(ctx: click.Context, queue: str | None, as_json: bool) -> None:
    """Check the store and the queues, with remedies.

    Of one queue or of all. The exit code is 1 when anything is not in order.
    """
    session = ctx.ensure_object(Session)
    checks = examine(session.client, queue)
    wrong = [check for check in checks if not check.ok]
    if as_json:
        print_json({"ok": not wrong, "checks": checks})
    else:
        print_columns([_row(check) for check in checks])
        note(
            f"{len(wrong)} of {many(len(checks), 'check')} not in order"
            if wrong
            else f"{many(len(checks), 'check')}, all is well"
        )
    if wrong:
        ctx.exit(FAILURE)


def _row(check: Check) -> tuple[str, str, str, str, str]:
    remedy = f"-> {check.remedy}" if check.remedy else ""
    return "ok" if check.ok else "WRONG", check.subject, check.name, check.value, remedy
