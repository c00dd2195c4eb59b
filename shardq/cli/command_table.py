"""Every command: its section in the help, the place of its code, and its summary. This imports no command."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COMMANDS", "SECTIONS"]

_HERE = "shardq.cli.commands"


class CommandEntry(NamedTuple):
    """The section of a command, its place as ``module:attribute``, and the first line of its help."""

    section: str
    target: str
    summary: str
    extra: str = ""  # of the package, which has to be installed for it


def _entry(section: str, module: str, attribute: str, summary: str) -> CommandEntry:
    return CommandEntry(section, f"{_HERE}.{module}:{attribute}", summary)


def _service(attribute: str, summary: str) -> CommandEntry:
    return CommandEntry(_REST, f"{_HERE}.serve:{attribute}", summary, extra="service")


_QUEUES, _MESSAGES, _INSPECTION, _REST = "Queues", "Messages", "Inspection", "Store and tools"

SECTIONS = (_QUEUES, _MESSAGES, _INSPECTION, _REST)

COMMANDS = {
    "create": _entry(_QUEUES, "settings", "create", "Create a queue and its dead-letter queue."),
    "alter": _entry(_QUEUES, "settings", "alter", "Change settings of a queue in use."),
    "apply": _entry(_QUEUES, "settings", "apply", "Create and alter queues as a TOML file declares them."),
    "list": _entry(_QUEUES, "list_queues", "list_queues", "List the queues."),
    "describe": _entry(_QUEUES, "stats", "describe", "Show a queue's settings, layout and counts."),
    "delete": _entry(_QUEUES, "upkeep", "delete", "Delete a queue and everything in it."),
    "expire": _entry(_QUEUES, "upkeep", "expire", "Delete queues that have expired."),
    "purge": _entry(_QUEUES, "upkeep", "purge", "Remove all messages of a queue."),
    "sweep": _entry(_QUEUES, "upkeep", "sweep", "Remove old messages and leftovers of queues."),
    "pause": _entry(_QUEUES, "upkeep", "pause", "Stop delivering messages, or accepting new ones."),
    "resume": _entry(_QUEUES, "upkeep", "resume", "Deliver and accept messages again."),
    "schedule": _entry(_QUEUES, "schedule", "schedule", "Send messages at fixed times or at intervals."),
    "semaphore": _entry(_QUEUES, "semaphore", "semaphore", "Show, create or change a semaphore."),
    "topic": _entry(_QUEUES, "topic", "topic", "Create, list, relay and delete topics, and publish to them."),
    "subscription": _entry(
        _QUEUES, "topic", "subscription", "Make, list, rewind and delete the subscriptions of a topic."
    ),
    "broadcast": _entry(
        _QUEUES, "broadcast", "broadcast", "Send messages to all current listeners, and listen."
    ),
    "send": _entry(_MESSAGES, "send", "send", "Send messages: arguments, lines or JSON lines."),
    "receive": _entry(_MESSAGES, "receive", "receive", "Receive messages and print them."),
    "work": _entry(
        _MESSAGES,
        "work",
        "work",
        "Run a handler on the messages of one queue or several, in several processes.",
    ),
    "task": _entry(_MESSAGES, "task", "task", "List, show, cancel and retry tasks and workflows."),
    "pipeline": _entry(
        _MESSAGES, "pipeline", "pipeline", "Run, draw and check pipelines: links from queue to queue."
    ),
    "ack": _entry(_MESSAGES, "receive", "ack", "Ack messages by their receipts."),
    "release": _entry(_MESSAGES, "receive", "release", "Return messages to the queue by their receipts."),
    "extend": _entry(_MESSAGES, "receive", "extend", "Extend the leases of messages by their receipts."),
    "remove": _entry(
        _MESSAGES, "messages", "remove", "Remove messages by their ids, or those that are selected."
    ),
    "edit": _entry(_MESSAGES, "edit", "edit", "Change a pending message, and print its new id."),
    "redrive": _entry(_MESSAGES, "upkeep", "redrive", "Move dead letters back to their queue."),
    "history": _entry(_MESSAGES, "messages", "history", "Show processed messages, or send them again."),
    "peek": _entry(_INSPECTION, "messages", "peek", "Show messages without receiving them."),
    "get": _entry(_INSPECTION, "messages", "get", "Show one message by its id."),
    "trace": _entry(_INSPECTION, "messages", "trace", "Show the events of a message."),
    "consumers": _entry(
        _INSPECTION, "consumers", "consumers", "List consumers with their messages, and evict a dead one."
    ),
    "stats": _entry(_INSPECTION, "stats", "stats", "Count messages by state; follow them live."),
    "doctor": _entry(_INSPECTION, "doctor", "doctor", "Check the store and the queues, with remedies."),
    "metrics": CommandEntry(
        _INSPECTION,
        f"{_HERE}.metrics:metrics",
        "Serve the state of all queues, for Prometheus.",
        extra="metrics",
    ),
    "backup": _entry(_REST, "store", "backup", "Save all queues of an SQLite file, beside running clients."),
    "restore": _entry(_REST, "store", "restore", "Replace an SQLite file by a backup."),
    "schema": _entry(_REST, "store", "schema", "Print or apply the schema of a store."),
    "help": _entry(_REST, "help", "show_help", "Show the help of a command, as --help does."),
    "completion": _entry(_REST, "help", "completion", "Print the completion script of a shell."),
    "serve": _service("serve_command", "Serve a JSON API, and with --ui a dashboard."),
    "ui": _service("ui", "Open the dashboard in a browser, for one person on this machine."),
    "keys": _service("keys", "Create, list and revoke the keys of `shardq serve`."),
    "plan": _entry(_REST, "plan", "plan", "Propose a layout for a load, with its reasons."),
    "bench": _entry(_REST, "bench", "bench", "Measure messages per second, and latency."),
    "spark": CommandEntry(_REST, "shardq.cli.spark:spark", "Move many messages with Spark.", extra="spark"),
}
