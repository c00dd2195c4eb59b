"""``shardq doctor``: checks of the store, its clock and each queue."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby

import click
import msgspec

from shardq.base.clock import seconds
from shardq.cli.command import ReadCommand, Session, complete_queues, json_option, read_each, worked_queues
from shardq.cli.failures import FAILURE, exit_code
from shardq.cli.printing import many, note, print_columns, print_json, print_line
from shardq.cli.times import duration, in_words
from shardq.client import Client
from shardq.client.queue import Queue
from shardq.client.queue_internals import sent_ahead
from shardq.core.counts import QueueCounts
from shardq.core.limits.permits import PERMITS_FOLDER
from shardq.core.pinging import clock_finding
from shardq.core.settings import QueueSettings
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.errors import InvalidSetting, QueueNotFound, ShardqError, StoreUnavailable

__all__ = ["Check", "check_restored", "check_store", "doctor", "examine", "summary"]

LATE_LEASES = 10  # a message that has been due for longer than this number of visibility timeouts
LATE_SECONDS = 300.0  # and than this
MOST_SHOWN = 300  # checks, of some fifty queues; of more those that are in order are left out
MOST_AHEAD = 10_000  # messages that are looked at
MOST_BLOCKING = 1_000  # messages that are looked at


@click.command(cls=ReadCommand, reports_damage=True, example="shardq doctor orders")
@click.argument("queue", required=False, shell_complete=complete_queues)
@click.option("--quiet", "-q", is_flag=True, help="Show only checks that are not in order, and warnings.")
@click.option(
    "--late-after",
    type=duration,
    help="How long a message may be due without a delivery.  [5m, or 10 visibility timeouts if that is longer]",
)
@click.option(
    "--restored",
    is_flag=True,
    help="After a restore: also check the restored messages, leases and schedules.",
)
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    queue: str | None,
    quiet: bool,
    late_after: float | None,
    restored: bool,
    as_json: bool,
) -> None:
    """Check the store and the queues, with remedies.

    Checks QUEUE, or without it all queues, those of subscriptions too. A warning may be harmless. --quiet leaves out
    notes, because you may be unable to apply their remedies. Exit code 1 means that something is wrong, 4 that the
    store is not reached; warnings and notes do not change it.

    Run it with --restored after a restore, before consumers start. It counts the messages of each queue. It names the
    leases that have to expire first, the messages that are too old, and the schedules that have missed occurrences.
    """
    checks, stopped_by = examine(ctx.ensure_object(Session).client, queue, late_after, restored=restored)
    wrong = [check for check in checks if not check.ok]
    if as_json:
        print_json({"ok": not wrong, "checks": checks})
    else:
        shown = [check for check in checks if not (quiet and _is_fine(check))]
        if len(shown) > MOST_SHOWN:
            shown = [check for check in shown if check.subject == "store" or not _is_fine(check)]
            note("too many to be shown, but for the store and failed checks: `shardq doctor QUEUE` shows all")
        _print(shown)
        note(summary(checks))
    if wrong:
        ctx.exit(exit_code(stopped_by) if stopped_by is not None else FAILURE)


def summary(checks: Sequence[Check]) -> str:
    """Summarize the checks in one line."""
    wrong = sum(not check.ok for check in checks)
    warnings = sum(check.ok and check.warning for check in checks)
    found = f"{wrong} of {many(len(checks), 'check')} not in order" if wrong else many(len(checks), "check")
    if warnings:
        return f"{found}, {many(warnings, 'warning')}"
    return found if wrong else f"{found}, all is well"


def _is_fine(check: Check) -> bool:
    return check.ok and not check.warning


def _print(checks: Sequence[Check]) -> None:
    """Print a line for each check; in a terminal under its queue, as the names of queues may be long."""
    if not sys.stdout.isatty():
        print_columns(map(_row, checks))
        return
    width = max((len(check.name) for check in checks), default=0)
    for subject, found in groupby(checks, lambda check: check.subject):
        print_line(subject)
        rows = [(verdict, name, value) for verdict, _, name, value in map(_row, found)]
        print_columns([(f"  {verdict:<7}", f"{name:<{width}}", value) for verdict, name, value in rows])


def _row(check: Check) -> tuple[str, str, str, str]:
    verdict = "WRONG" if not check.ok else "warning" if check.warning else "note" if check.note else "ok"
    value = f"{check.value}  -> {check.remedy}" if check.remedy else check.value
    return verdict, check.subject, check.name, value


class Check(msgspec.Struct, frozen=True):
    """The result of one check, with a remedy if it failed."""

    subject: str
    name: str
    ok: bool
    value: str
    remedy: str = ""
    warning: bool = False  # it may be well, which cannot be seen from here
    note: bool = False  # its remedy may be out of reach, so it is not reported again and again


def examine(
    client: Client, queue: str | None, late_after: float | None = None, *, restored: bool = False
) -> tuple[list[Check], ShardqError | None]:
    """Make all checks, for one queue or for all; return also the error that ended them when the store is not in order.

    Messages are late that are due for more than ``late_after`` seconds; None: five minutes, or ten visibility timeouts
    of their queue if those are longer. With ``restored`` there are also checks of the queues after a restore.
    Raises QueueNotFound if the queue does not exist.
    """
    checks = list(check_store(client))
    unreachable = next((check for check in checks if check.name == "reachable" and not check.ok), None)
    if unreachable is not None:
        return checks, StoreUnavailable(unreachable.value)
    try:
        names = worked_queues(client) if queue is None else ()
        checks += check_clock(client)
        dead = _DeadLetterQueues(client)

        def check(name: str) -> list[Check]:
            try:
                opened = client.queue(name)
                return [
                    *(check_restored(opened, client.now()) if restored else ()),
                    *check_queue(client, opened, dead, late_after),
                ]
            except InvalidSetting as error:  # the other queues are checked all the same
                return [Check(name, "settings", False, "cannot be read", str(error))]

        if queue is not None:
            checks += check(queue)
        for found in read_each(names, check):
            checks += found
        checks += check_schedules(client, queue) if restored else ()
    except ShardqError as error:
        if isinstance(error, QueueNotFound) or all(check.ok for check in checks):
            raise
        return checks, error
    return checks, None


class _DeadLetterQueues:
    """The queues for the dead letters of others. The settings of all queues are read when one is asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: set[str | None] | None = None

    def __contains__(self, name: object) -> bool:
        if self._names is None:
            self._names = set(read_each(worked_queues(self._client), self._dead_letter_name))
        return name in self._names

    def _dead_letter_name(self, name: str) -> str | None:
        with suppress(InvalidSetting):
            return dead_letter_name(name, self._client.queue(name).settings)
        return None


def check_store(client: Client) -> Iterator[Check]:
    """Yield the checks that the store makes itself."""
    for finding in client.diagnose():
        remedy = "" if finding.ok and not (finding.warning or finding.note) else finding.remedy
        yield Check("store", finding.name, finding.ok, finding.value, remedy, finding.warning, finding.note)


def check_clock(client: Client) -> Iterator[Check]:
    """Check the difference between the store's clock and the clock of this machine."""
    finding = clock_finding(client.now().timestamp() - time.time())
    yield Check("store", finding.name, finding.ok, finding.value, finding.remedy)


def check_queue(
    client: Client, queue: Queue, dead_letter_queues: Container[str], late_after: float | None = None
) -> Iterator[Check]:
    """Check the settings and the counts of a queue. Dead letters and free permits may wait for any time."""
    settings, counts, name = queue.settings, queue.counts(), queue.name
    yield _verdict(name, "delivery", not settings.delivery_paused, "on", "paused", f"shardq resume {name}")
    yield _verdict(name, "sends", not settings.sends_paused, "on", "paused", f"shardq resume {name}")
    yield _ring(name, settings)
    age = _age(name, settings, counts, client.now(), late_after)
    if not name.startswith(PERMITS_FOLDER) and (age.ok or name not in dead_letter_queues):
        yield age
    if counts.delayed or counts.in_flight:  # others are due, whenever they came
        yield _sent_ahead(queue)
    if settings.has_dead_letters:
        yield _dead_letters(client, name, dead_letter_name(name, settings))
    if settings.on_dead_letter == "block":
        yield _blocked(queue)


def check_restored(queue: Queue, now: datetime) -> Iterator[Check]:
    """Count the messages of a queue after a restore. Name those that wait for a lease, and those that are too old."""
    counts, name, retention = queue.counts(), queue.name, queue.settings.retention
    states = (counts.ready, "ready"), (counts.delayed, "delayed"), (counts.in_flight, "in flight")
    found = ", ".join(f"{number:,} {state}" for number, state in (*states, (counts.processed, "acked")))
    yield Check(name, "messages", True, found)
    holders = [each for each in queue.consumers() if each.held_until is not None] if counts.in_flight else []
    if holders:
        held = many(sum(each.held for each in holders), "message")
        last = max(each.held_until for each in holders if each.held_until is not None)
        left = in_words(max(0.0, (last - now).total_seconds()))
        value = f"{held} of {many(len(holders), 'consumer')}, the last lease expires in {left}"
        remedy = f"wait, or `shardq consumers evict {holders[0].name or holders[0].id} --force` for each that is gone"
        yield Check(name, "leases", True, value, remedy, note=True)
    if retention is not None and counts.oldest is not None:
        age = (now - counts.oldest).total_seconds()
        value = f"the oldest message is {in_words(age)} old, the retention {in_words(retention)}"
        remedy = f"consumers and sweeps drop such messages: `shardq alter {name} --retention {2 * age:.0f}s` keeps them"
        yield Check(
            name, "retention", True, value, remedy if age > retention else "", warning=age > retention
        )


def check_schedules(client: Client, queue: str | None) -> Iterator[Check]:
    """Name the schedules, of one queue or of all, that have missed occurrences."""
    now = client.now()
    for each in client.schedules.list(queue):
        if each.paused or each.next is None or each.next > now:
            continue
        late = (now - each.next).total_seconds()
        follows = "the last one is sent late" if each.catch_up == "one" else "none is sent late"
        value = f"occurrences of the last {in_words(late)} were missed; {follows}, when a consumer runs"
        remedy = f"`shardq schedule pause {each.id}` and `resume` before consumers start skip them"
        yield Check(each.queue, f"schedule {each.id}", True, value, remedy, note=True)


def _ring(name: str, settings: QueueSettings) -> Check:
    """Check that shards rest for as long as messages may be in flight. Only the speed of the queue depends on it."""
    lap = settings.time_shards * settings.time_shard_seconds
    value = f"{in_words(lap)} a lap"
    if settings.time_shards == 1 or lap >= settings.visibility_timeout:
        return Check(name, "ring", True, value)
    value += ", which is shorter than the visibility timeout: reads may become slower"
    longer = math.ceil(settings.visibility_timeout / settings.time_shards)
    return Check(
        name, "ring", True, value, f"shardq alter {name} --time-shard-seconds {longer}s", warning=True
    )


def _age(
    name: str, settings: QueueSettings, counts: QueueCounts, now: datetime, late_after: float | None
) -> Check:
    if counts.ready_since is None:
        return Check(name, "oldest due", True, "none")
    age = counts.late_seconds(now)
    most = max(LATE_SECONDS, LATE_LEASES * settings.visibility_timeout) if late_after is None else late_after
    fine = age <= most
    value = f"{in_words(age)}, {counts.ready:,} ready"
    return _verdict(
        name, "oldest due", fine, value, value, f"start workers: shardq work {name} --handler ..."
    )


def _sent_ahead(queue: Queue) -> Check:
    """Check for messages from a time that has not come: they are delivered then, however they were sent."""
    found, latest = sent_ahead(queue, MOST_AHEAD)
    if not found:
        return Check(queue.name, "sent ahead", True, "none")
    value = f"{many(found, 'message')}, by up to {in_words(seconds(latest))}"
    remedy = (
        "a clock was ahead for a while: see `shardq peek`; remove messages that are not to wait for so "
        "long, and send them again"
    )
    return Check(queue.name, "sent ahead", True, value, remedy, warning=True)


def _dead_letters(client: Client, name: str, dead: str) -> Check:
    if not client.exists(dead):
        remedy = f"shardq alter {name} --dead-letter-queue {dead}, which creates it"
        return Check(name, "dead letters", False, f"queue {dead} is missing", remedy)
    waiting = client.queue(dead).counts().backlog
    remedy = f"shardq peek {dead} shows why; shardq redrive {name} sends them again"
    return _verdict(name, "dead letters", not waiting, "none", f"{waiting:,} in {dead}", remedy)


def _blocked(queue: Queue) -> Check:
    name, blocking = queue.name, queue.peek(MOST_BLOCKING, blocked=True)
    groups = many(len({message.group for message in blocking}), "group")
    remedy = (
        f"shardq peek {name} --blocked shows why; shardq redrive {name} delivers the blocking messages again, "
        "shardq remove ID lets a group continue without it"
    )
    return _verdict(name, "blocked groups", not blocking, "none", groups, remedy)


def _verdict(subject: str, name: str, ok: bool, fine: str, wrong: str, remedy: str) -> Check:
    return Check(subject, name, ok, fine if ok else wrong, "" if ok else remedy)
