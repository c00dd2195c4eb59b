"""``shardq serve``, ``shardq ui`` and ``shardq keys``: the HTTP service and its keys."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from shardq.cli.command import ExampleCommand, ExampleGroup, Session, json_option
from shardq.cli.failures import NOT_FOUND, StoreMissing
from shardq.cli.printing import note, print_columns, print_json, print_line
from shardq.cli.queue_history import history_option, keeping_history
from shardq.errors import ShardqError
from shardq.service import ROLES, KeyFile, ServePlan, ServiceOptions, serve
from shardq.service.keys import Role

__all__ = ["keys", "serve_command", "ui"]

DEFAULT_PORT = 8765
DEFAULT_KEYS = "shardq-keys.json"
_DOCTOR = "shardq.cli.commands.doctor:examine"

_keys_option = click.option(
    "--keys",
    "keys_path",
    metavar="FILE",
    default=DEFAULT_KEYS,
    envvar="SHARDQ_KEYS",
    show_default=True,
    show_envvar=True,
    help="The file with the keys.",
)
_read_only_option = click.option("--read-only", is_flag=True, help="Refuse every change.")
_mask_option = click.option(
    "--mask",
    metavar="MODULE:FUNCTION",
    help="Called with a queue's name and a body; returns what is shown of it, or None to hide it.",
)
_audit_option = click.option("--audit-log", metavar="FILE", help="Append a line for each action.  [stderr]")


@click.command(
    "serve",
    cls=ExampleCommand,
    example="shardq serve --ui\nshardq serve --ui --host 0.0.0.0 --allow-host queues.example.com --processes 4",
)
@click.option("--ui", "with_ui", is_flag=True, help="Serve the dashboard too.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to bind.")
@click.option("--port", type=click.IntRange(0, 65_535), default=DEFAULT_PORT, show_default=True)
@click.option("--processes", "-p", type=click.IntRange(1, 64), default=1, show_default=True)
@_keys_option
@click.option(
    "--insecure", is_flag=True, help="Serve other machines without keys: each request may do everything."
)
@click.option(
    "--allow-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name by which it is reached. May be repeated.",
)
@click.option("--prefix", metavar="PATH", default="", help="The path that a proxy in front removes.")
@click.option(
    "--rate-limit",
    type=float,
    metavar="N",
    default=ServiceOptions().rate_limit,
    show_default=True,
    help="Requests a second of one key, in each process; 0 for any number.",
)
@_read_only_option
@_mask_option
@_audit_option
@click.option("--certificate", metavar="FILE", help="Serve HTTPS with this certificate, and --private-key.")
@click.option("--private-key", metavar="FILE", help="The key of the certificate.")
@history_option
@click.pass_obj
def serve_command(
    session: Session,
    /,
    with_ui: bool,
    host: str,
    port: int,
    processes: int,
    keys_path: str,
    insecure: bool,
    hosts: Sequence[str],
    prefix: str,
    rate_limit: float,
    read_only: bool,
    mask: str | None,
    audit_log: str | None,
    certificate: str | None,
    private_key: str | None,
    keeps_history: bool,
) -> None:
    """Serve a JSON API, and with --ui a dashboard.

    Binds 127.0.0.1, where each request may do everything unless the file with the keys exists. Another address, or
    --allow-host for a proxy in front, needs keys: `shardq keys create`. A file that you name with --keys must exist.
    The variable SHARDQ_SERVICE_SECRET signs sessions; give the same one to each machine behind a load balancer. /livez
    and /readyz are for health checks, /api/v1/openapi.json describes the API.
    """
    plan = ServePlan(
        url=session.url,
        host=host,
        port=port,
        processes=processes,
        prefix=prefix,
        mask=mask,
        doctor=_DOCTOR,
        audit_log=audit_log,
        certificate=certificate,
        key=private_key,
        insecure=insecure,
        allow_hosts=tuple(hosts),
        options=ServiceOptions(
            keys=_file_of_keys(keys_path), read_only=read_only, ui=with_ui, rate_limit=rate_limit or None
        ),
    )

    def started(url: str) -> None:
        note(f"serving on {url}  (Ctrl-C ends it)")
        _note_missing_file(session)

    with keeping_history(session.url if keeps_history and not read_only else None):
        serve(plan, on_start=started)


@click.command("ui", cls=ExampleCommand, example="shardq ui\nshardq ui --read-only --no-browser")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port.  [one that is free]")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@_read_only_option
@_mask_option
@_audit_option
@history_option
@click.pass_obj
def ui(
    session: Session,
    /,
    port: int,
    no_browser: bool,
    read_only: bool,
    mask: str | None,
    audit_log: str | None,
    keeps_history: bool,
) -> None:
    """Open the dashboard in a browser, for one person on this machine.

    Binds 127.0.0.1, without keys.
    """
    plan = ServePlan(
        url=session.url,
        port=port,
        mask=mask,
        doctor=_DOCTOR,
        audit_log=audit_log,
        options=ServiceOptions(read_only=read_only, ui=True),
    )

    def started(url: str) -> None:
        note(f"dashboard on {url}  (Ctrl-C ends it)")
        _note_missing_file(session)
        if not no_browser:
            opening = threading.Timer(0.5, webbrowser.open, (url,))  # when the server answers
            opening.daemon = True
            opening.start()

    with keeping_history(session.url if keeps_history and not read_only else None):
        serve(plan, on_start=started)


def _note_missing_file(session: Session) -> None:
    """Report on stderr that the store's file does not exist: a wrong path looks like a store without queues."""
    if session.url.startswith("sqlite:"):  # a server that is unreachable would hold up the start
        with suppress(ShardqError):
            try:
                if not session.client.queues():
                    session.check_file()
            except StoreMissing as error:
                note(f"note: {error.format_message()}")


def _file_of_keys(path: str) -> str | None:
    """Return the path of the file with the keys. None if it is the default path, and there is no file."""
    source = click.get_current_context().get_parameter_source("keys_path")
    return path if source is not ParameterSource.DEFAULT or Path(path).exists() else None


keys = ExampleGroup(
    name="keys",
    help="Create, list and revoke the keys of `shardq serve`.",
    example="shardq keys create grafana --role read\nshardq keys create ops --role manage --queue 'orders*'",
)


@keys.command(example="shardq keys create ops --role act --queue 'orders*'")
@click.argument("name", metavar="NAME")
@click.option(
    "--role", type=click.Choice(ROLES), default="read", show_default=True, help="The rights of the key."
)
@click.option(
    "--queue",
    "queues",
    metavar="PATTERN",
    multiple=True,
    help="Queues it is for, such as 'mail/**'.  [**]  May be repeated.",
)
@_keys_option
def create(name: str, role: str, queues: Sequence[str], keys_path: str) -> None:
    """Create a key and print it, this once.

    read shows everything, act also sends, redrives, removes and evicts, manage also creates, changes, purges and
    deletes queues. The file keeps a hash of it only.
    """
    print_line(KeyFile(keys_path).create(name, cast("Role", role), queues or ("**",)))


@keys.command("list", example="shardq keys list")
@_keys_option
@json_option
def list_keys(keys_path: str, as_json: bool) -> None:
    """List the keys, without their secrets."""
    found = KeyFile(keys_path).keys()
    rows: list[dict[str, Any]] = [
        {
            "id": key.id,
            "name": key.grant.name,
            "role": key.grant.role,
            "queues": list(key.grant.queues),
            "created": key.created,
        }
        for key in found
    ]
    if as_json:
        print_json({"keys": rows})
    elif rows:
        lines = [
            (
                key.id,
                key.grant.name,
                key.grant.role,
                " ".join(key.grant.queues),
                f"{key.created:%Y-%m-%d %H:%M:%S}",
            )
            for key in found
        ]
        print_columns([("id", "name", "role", "queues", "created"), *lines])


@keys.command(example="shardq keys revoke 9f86d081")
@click.argument("identity", metavar="ID")
@_keys_option
@click.pass_context
def revoke(ctx: click.Context, /, identity: str, keys_path: str) -> None:
    """Revoke a key by its ID, with its sessions.

    A service that runs notices it at its next request. Exit code 3 means that there is no such key.
    """
    if not KeyFile(keys_path).revoke(identity):
        note(f"shardq: key_not_found: there is no key {identity} in {keys_path}: see `shardq keys list`")
        ctx.exit(NOT_FOUND)
    note(f"key {identity} is revoked")
