"""Handlers that the processes of a pool import."""

from __future__ import annotations

import asyncio
import logging.config
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import shardq
import shardq.aio
from shardq import Batch, DeadLetter, Discard, Message, Outcome, Snooze


def nothing(message: Message) -> None:
    pass


def slow(message: Message) -> None:
    time.sleep(0.1)


def whole(batch: Batch) -> None:
    batch.ack()


def die_once(message: Message) -> None:
    """Kill the process on the first message ever."""
    if _first(message):
        os.kill(os.getpid(), signal.SIGKILL)


def hang_once(message: Message) -> None:
    if _first(message):
        time.sleep(60)


def stand_still_once(message: Message) -> None:
    if _first(message):
        os.kill(os.getpid(), signal.SIGSTOP)


def become_another_program_once(message: Message) -> None:
    if _first(message):
        os.execvp("sleep", ["sleep", "600"])


def leave_a_thread(message: Message) -> None:
    threading.Thread(target=time.sleep, args=(600,)).start()


def leave_a_thread_and_interrupt_once(message: Message) -> None:
    if _first(message):
        leave_a_thread(message)
        raise KeyboardInterrupt


def die_on_poison_after_half_a_second(message: Message) -> None:
    time.sleep(0.5)
    die_on_poison(message)


def die_on_poison(message: Message) -> None:
    if message.body == b"poison":
        os._exit(0)


def die(message: Message) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lose_then_die(message: Message) -> None:
    """Lose the lease of the first message of the process, and kill the process with the second one."""
    if _lost:
        die(message)
    _lost.append(message)
    with shardq.connect(message.body.decode()) as client:
        queue = client.queue(message.queue)
        for consumer in queue.consumers():
            queue.evict(consumer.id, force=True)


_lost: list[Message] = []


def leave(message: Message) -> None:
    raise SystemExit(0)


def leave_at_once_once(message: Message) -> None:
    if _first(message):
        os._exit(0)


def _first(message: Message | shardq.aio.Message) -> bool:
    marker = Path(message.body.decode())
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def generator(message: Message) -> Iterator[None]:
    yield


def late_generator(message: Message) -> object:
    """Return something that has not run, once the pool has been stopped."""
    while not Path(message.body.decode()).exists():
        time.sleep(0.05)
    return generator(message)


async def slowly(message: shardq.aio.Message) -> None:
    await asyncio.sleep(0.2)


async def hang_asleep_once(message: shardq.aio.Message) -> None:
    if _first(message):
        await asyncio.sleep(3_600)


async def crash_on_poison(message: shardq.aio.Message) -> None:
    await asyncio.sleep(0)
    if message.body == b"poison":
        os._exit(9)


def as_told(message: Message) -> Outcome | None:
    """Do what the body says."""
    match message.body:
        case b"snooze":
            return Snooze(600)
        case b"discard":
            raise Discard("told so")
        case b"dead":
            raise DeadLetter("told so")
        case b"ValueError":
            raise ValueError("told so")
        case b"KeyError":
            raise KeyError("told so")
    return None


def choose(_message: Message, error: Exception) -> Outcome | None:
    return Discard() if isinstance(error, KeyError) else None


def nap(message: Message) -> None:
    time.sleep(1)


def _sleep(begun: Event) -> None:
    begun.set()
    time.sleep(60)


def end_a_child(message: Message) -> None:
    """Have a process of its own, which is told to end. Python forgets a signal that comes while a child begins."""
    fork = multiprocessing.get_context("fork")
    begun = fork.Event()
    child = fork.Process(target=_sleep, args=(begun,))
    child.start()
    assert begun.wait(30)
    child.terminate()
    child.join(30)
    assert child.exitcode == -signal.SIGTERM, child.exitcode
    child.close()


def fork(message: Message) -> None:
    """Have a child that leaves as the body says, and wait for it."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    elif message.body == b"exit":
        sys.exit()
    elif message.body == b"error":
        raise ValueError("of a child")


def hang(message: Message) -> None:
    """Open the pipe that the body names, tell that it has begun, and hang."""
    with Path(message.body.decode()).open("w") as pipe:
        print("begun", file=pipe, flush=True)
        time.sleep(600)


def run(message: Message) -> None:
    """Run the body as a shell command."""
    subprocess.run(message.body.decode(), shell=True, check=True)


def configure_logging_and_fail(message: Message) -> None:
    handlers = {"err": {"class": "logging.StreamHandler"}}
    logging.config.dictConfig({"version": 1, "handlers": handlers, "root": {"handlers": ["err"]}})
    raise ValueError("boom")
