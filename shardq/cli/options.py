"""Arguments and options that several commands have."""

from __future__ import annotations

import click

__all__ = ["codec_option", "json_option", "queue_argument", "yes_option"]

queue_argument = click.argument("queue", metavar="QUEUE")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")

codec_option = click.option(
    "--codec",
    type=click.Choice(["bytes", "text", "json", "msgpack"]),
    default="bytes",
    show_default=True,
    help="What the bodies are.",
)
