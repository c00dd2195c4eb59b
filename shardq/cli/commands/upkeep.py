"""Commands for queues: ``shardq delete``, ``purge``, ``sweep``, ``pause``, ``resume``, ``redrive``, ``expire``."""

from __future__ import annotations

import click

from shardq.cli.command import ExampleCommand, Session, json_option, queue_argument, yes_option
from shardq.cli.printing import many, note, print_json
from shardq.errors import QueueNotFound
from shardq.settling.dead_letters import dead_letter_name

__all__ = ["delete", "expire", "pause", "purge", "redrive", "resume", "sweep"]


@click.command(cls=ExampleCommand, example="shardq delete orders --yes")
@queue_argument
@yes_option
@click.pass_obj
def delete(session: Session, queue: str, yes: bool) -> None:
    """Delete a queue and everything in it.

    Its history and its schedules are deleted too. Its dead-letter queue is a queue of its own and stays.
    """
    counts = session.queue(queue).counts()
    waiting = many(counts.ready + counts.delayed + counts.in_flight, "message")
    schedules = len(session.client.schedules.list(queue))
    also = f" and {many(schedules, 'schedule')}" if schedules else ""
    if not yes:
        click.confirm(f"Delete queue {queue} with {waiting}{also}?", abort=True, err=True)
    session.client.delete_queue(queue)
    note(f"queue {queue} is deleted")


@click.command(cls=ExampleCommand, example="shardq expire replies/")
@click.argument("prefix", default="")
@json_option
@click.pass_obj
def expire(session: Session, prefix: str, as_json: bool) -> None:
    """Delete queues that have expired.

    Those whose names begin with PREFIX, and that were empty and unused for as long as their `expires` says. The time
    begins when this command, or a consumer of a queue beside it, first finds a queue unused. Run it now and then.
    """
    deleted = session.client.delete_expired_queues(prefix)
    if as_json:
        print_json({"deleted": deleted})
        return
    for name in deleted:
        click.echo(name)
    note(f"{many(len(deleted), 'queue')} deleted")


@click.command(cls=ExampleCommand, example="shardq purge orders --yes")
@queue_argument
@yes_option
@json_option
@click.pass_obj
def purge(session: Session, queue: str, yes: bool, as_json: bool) -> None:
    """Remove all messages of a queue.

    Messages in flight are removed too. The history stays.
    """
    target = session.queue(queue)
    if not yes:
        click.confirm(f"Remove all messages of queue {queue}?", abort=True, err=True)
    purged = target.purge()
    if as_json:
        print_json({"purged": purged})
    else:
        note(f"{many(purged, 'message')} removed from queue {queue}")


@click.command(cls=ExampleCommand, example="shardq sweep orders")
@queue_argument
@json_option
@click.pass_obj
def sweep(session: Session, queue: str, as_json: bool) -> None:
    """Remove old messages and leftovers of a queue.

    Removes messages that are older than the queue's retention and not in flight, history that is older than its
    history-retention, and leftovers of crashed clients. It needs no consumers and can be run at any time.
    """
    removed = session.queue(queue).sweep()
    if as_json:
        print_json({"removed": removed})
    else:
        note(f"{many(removed, 'thing')} removed from queue {queue}")


@click.command(cls=ExampleCommand, example="shardq pause orders --sends")
@queue_argument
@click.option("--sends", is_flag=True, help="Refuse new messages too.")
@click.option("--only-sends", is_flag=True, help="Refuse new messages and go on delivering.")
@click.pass_obj
def pause(session: Session, queue: str, sends: bool, only_sends: bool) -> None:
    """Stop delivering messages, or accepting new ones.

    Messages in flight can still be acked. Every client follows within about a second.
    """
    session.queue(queue).pause(delivery=not only_sends, sends=sends or only_sends)
    delivery = "goes on delivering" if only_sends else "delivers no messages"
    accepting = "accepts no new ones" if sends or only_sends else "goes on accepting new ones"
    note(f"queue {queue} {delivery} and {accepting}: `shardq resume {queue}` ends it")


@click.command(cls=ExampleCommand, example="shardq resume orders")
@queue_argument
@click.pass_obj
def resume(session: Session, queue: str) -> None:
    """Deliver and accept messages again."""
    session.queue(queue).resume()
    note(f"queue {queue} delivers and accepts messages")


@click.command(cls=ExampleCommand, example="shardq redrive orders --limit 100")
@queue_argument
@click.option("--limit", type=int, help="Move at most this many. Default: all.")
@json_option
@click.pass_obj
def redrive(session: Session, queue: str, limit: int | None, as_json: bool) -> None:
    """Move dead letters back to their queue.

    QUEUE is the queue that they came from, not the dead-letter queue. They are new messages there: their deliveries
    start at 0. Those that block their groups keep their places.
    """
    target = session.queue(queue)
    moved = target.redrive(limit)
    dead = dead_letter_name(queue, target.settings)
    if not moved and not session.client.exists(dead):
        raise _nothing_to_redrive(session, queue, dead)
    if as_json:
        print_json({"redriven": moved})
    else:
        note(f"{many(moved, 'dead letter')} back in queue {queue}")


def _nothing_to_redrive(session: Session, queue: str, dead: str) -> QueueNotFound:
    """The error for a queue without dead letters of its own, which may be a dead-letter queue."""
    origin = queue.removesuffix(dead.removeprefix(queue))
    remedy = "give the queue that the dead letters came from"
    if origin != queue and session.client.exists(origin):
        remedy = f"`shardq redrive {origin}` moves the messages of {queue!r} back"
    return QueueNotFound(f"queue {queue!r} has no dead-letter queue {dead!r}: {remedy}")
