"""A program whose threads are interrupted again and again, at any moment of what they do with one client.

It ends with 0 when all threads go on afterwards. It is a process of its own, as an interrupt may come in what else a
thread does, such as a hook of pytest. Arguments: URL, queue, group or "", messages claimed ahead, and "thread" or
"signal".
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import shardq
from shardq.tasks.threads import a_thread_starts

# Seconds until a thread that gets no further counts as hanging, however long all of its work takes.
PATIENCE = 30.0
INTERRUPTS = 100
LONGEST = 10.0  # seconds for which is interrupted: fewer interrupts on a busy machine
THREADS = 4


class Interrupt(BaseException):
    """Raised at any moment, as by the timeout of a task or the handler of a signal."""


class Member:
    """A thread that works until it is told to end, whatever interrupts it."""

    def __init__(self, work: Callable[[], Iterator[None]]) -> None:
        self._work, self.ended = work, False
        self.steps = self.rounds = self.interrupted = 0
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._persist, daemon=True)

    def _persist(self) -> None:
        while not self.ended:
            try:
                self.run()
            except Interrupt:
                continue

    def run(self) -> None:
        while not self.ended:
            self.do_round()

    def do_round(self) -> None:
        try:
            for _ in self._work():
                self.steps += 1
            self.rounds += 1
        except (Interrupt, SystemError):  # which C code of a driver may make of an interrupt
            self.interrupted += 1
        except shardq.ShardqError as error:
            self.error = error

    def interrupt(self) -> None:
        """Raise it in the thread; not while that starts another one, in which Python might raise it instead."""
        until = time.monotonic() + PATIENCE
        while a_thread_starts() and time.monotonic() < until:
            time.sleep(0.001)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self.thread.ident or 0), ctypes.py_object(Interrupt)
        )


def work_of(queue: shardq.Queue, *, prefetch: int, group: str | None) -> Callable[[], Iterator[None]]:
    """What sends, receives and acks, step by step."""

    def work() -> Iterator[None]:
        with queue.producer() as producer, queue.consumer(prefetch=prefetch) as consumer:
            for _ in range(20 if prefetch else 3):
                producer.send(b"x" * 10, group=group)
                yield
                for message in consumer.receive(3, wait=0.05):
                    message.ack()
                yield

    return work


def await_rounds(members: list[Member], more: int) -> None:
    """Wait until each of the members has done so many rounds more; end the program when one hangs."""
    wanted = {member: member.rounds + more for member in members}
    seen = dict.fromkeys(members, (-1, 0.0))  # steps, and when there were no more
    while waiting := [member for member, least in wanted.items() if member.rounds < least]:
        now = time.monotonic()
        seen.update({each: (each.steps, now) for each in waiting if each.steps != seen[each][0]})
        if any(now - seen[each][1] > PATIENCE for each in waiting):
            faulthandler.dump_traceback()
            print(
                [(each.rounds, each.steps, each.interrupted, each.error) for each in members], file=sys.stderr
            )
            os._exit(1)
        time.sleep(0.01)


def interrupt_threads(members: list[Member]) -> int:
    chance = random.Random(7)
    until = time.monotonic() + LONGEST
    for _ in range(INTERRUPTS):
        if time.monotonic() > until:
            break
        chance.choice(members).interrupt()
        time.sleep(chance.uniform(0, 0.01))
    return sum(member.interrupted for member in members)


def interrupt_main(main: Member) -> int:
    def handler(number: int, frame: object) -> None:
        raise Interrupt

    signal.signal(signal.SIGALRM, handler)
    until = time.monotonic() + LONGEST
    while main.interrupted < INTERRUPTS // 4 and time.monotonic() < until:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.03))
            main.do_round()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupt:
            continue
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return main.interrupted


def main(url: str, name: str, group: str, prefetch: str, kind: str) -> None:
    sys.unraisablehook = lambda _: None  # finalizers are interrupted, too
    client = shardq.connect(url)
    work = work_of(client.queue(name), prefetch=int(prefetch), group=group or None)
    members = [Member(work) for _ in range(THREADS)]
    for member in members:
        member.thread.start()
    await_rounds(members, 1)
    interrupted = interrupt_threads(members) if kind == "thread" else interrupt_main(Member(work))
    await_rounds(members, 3)
    for _ in work():
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
    print(interrupted, "interrupts")
    os._exit(0 if interrupted else 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
