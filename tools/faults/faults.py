"""What each fault does, and how it is undone."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TypeAlias

import msgspec

import shardq
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store

from .bystanders import Bystanders
from .dial import Dial, Loss
from .partly import go_on_without_a_shard
from .pooled import HANDLER_SECONDS
from .proxy import Proxy
from .saved import parts_in
from .schedule import Step
from .stage import AT_WORK, CONSUMERS, Actor, Stage, has_ended
from .target import Target

__all__ = ["Faults", "Undo"]

FIVE_MINUTES, THREE_HOURS = 300.0, 10_800.0
ORPHAN_SECONDS = HANDLER_SECONDS + 30.0  # for what they do at the end, on a busy computer
BACKUP_SECONDS, COPY_SECONDS = 5.0, 0.1  # until the next backup begins, and until one is complete, about
LAYOUTS = ((2, 3, 1.0), (5, 4, 0.7), (1, 6, 2.0), (8, 2, 5.0))

Undo: TypeAlias = Callable[[], None]


class Faults(Bystanders):
    """Each fault that a target can meet, a method of its name: tells what was hit, and how to undo what lasts.

    ``start_again`` starts what does not run, given the process id that was told to end.
    """

    def __init__(
        self,
        target: Target,
        stage: Stage,
        client: shardq.Client,
        queue: str,
        start_again: Callable[[int], None],
    ) -> None:
        super().__init__(client, queue, huge=target.huge)
        self.target, self.stage = target, stage
        self._start_again = start_again
        self._machine = threading.Lock()  # held while it is suspended, and while a client is replaced
        self._suspended: list[Actor] = []

    # -- clients

    def _victim(self, step: Step, *roles: str) -> Actor:
        found = self.stage.of_role(*roles)
        if not found:
            raise RuntimeError(f"there is no {' or '.join(roles)} to hit")
        return found[int(step.victim * len(found))]

    def _kill(self, step: Step, *roles: str) -> tuple[str, None]:
        with self._machine:
            victim = self._victim(step, *roles)
            self.stage.replace(victim, signal.SIGKILL)
        return victim.name, None

    def _pause(self, step: Step, *roles: str) -> tuple[str, Undo]:
        """Stop a client, often for longer than its lease."""
        victim = self._victim(step, *roles)
        victim.send(signal.SIGSTOP)
        return victim.name, partial(self._go_on, victim)

    def _go_on(self, victim: Actor) -> None:
        if victim not in self._suspended:  # it goes on with its machine
            victim.send(signal.SIGCONT)

    def kill_producer(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "produce", "ask", "publish", "offer")

    def kill_consumer(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "work", "answer", "permit")

    def kill_keeper(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "keep")

    def kill_prefetcher(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "ahead", "overlap")

    def kill_mover(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "move")

    def kill_subscriber(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "subscribe", "tick")

    def kill_runners(self, step: Step) -> tuple[str, None]:
        """Kill workers of tasks, and who sends workflows, one shortly after the other."""
        dice = random.Random(step.victim)
        names = []
        for _ in range(2 + int(step.strength * 5)):
            roles = ("run", "run", "order") if self.stage.of_role("order") else ("run",)
            victim = msgspec.structs.replace(step, victim=dice.random())
            names.append(self._kill(victim, dice.choice(roles))[0])
            self.over.wait(dice.uniform(0.1, 0.7))
        return ", ".join(names), None

    def kill_reader(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "film", "watch")

    def kill_pool(self, step: Step) -> tuple[str, None]:
        """Kill the parent of a pool, whose processes have to end after the messages at hand."""
        with self._machine:  # their clocks must not go back, so it is not suspended meanwhile
            victim = self._victim(step, "pool")
            left, until = victim.children, time.monotonic() + ORPHAN_SECONDS
            self.stage.replace(victim, signal.SIGKILL)
            while left and time.monotonic() < until:
                time.sleep(0.1)
                left = [pid for pid in left if not has_ended(pid)]
        if left:
            self.problems.append(f"{victim.name}: {len(left)} processes outlived the parent that was killed")
        return victim.name, None

    def kill_saver(self, step: Step) -> tuple[str, None]:
        """Kill the client that makes backups, at some moment of the next one if that begins soon."""
        folder, until = self.stage.folder, time.monotonic() + BACKUP_SECONDS
        while not parts_in(folder) and time.monotonic() < until and not self.over.is_set():
            time.sleep(0.002)
        time.sleep(step.strength * COPY_SECONDS)
        name, _ = self._kill(step, "save")
        return f"{name}, {len(parts_in(folder))} not complete", None

    def interrupt_client(self, step: Step) -> tuple[str, None]:
        """Interrupt what a client is at, again and again and at any moment."""
        dice, until, times = random.Random(step.victim), time.monotonic() + step.seconds, 0
        victim = self._victim(step, "produce", *CONSUMERS)
        while victim.runs and time.monotonic() < until and not self.over.is_set():
            if victim.has_begun:
                victim.send(signal.SIGUSR1)
                times += 1
            self.over.wait(dice.uniform(0.0, 0.2))
        return f"{victim.name}, {times} times", None

    def pause_producer(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "produce", "ask", "publish")

    def pause_consumer(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "work", "answer", "permit", "pool")

    def pause_keeper(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "keep")

    def pause_prefetcher(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "ahead", "overlap")

    def pause_mover(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "move")

    def pause_subscriber(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "subscribe", "tick")

    def pause_runner(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "run", "order")

    def pause_reader(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "film", "watch")

    def roll_clients(self, step: Step) -> tuple[str, None]:
        """Replace the clients one after the other, as a release of an application does."""
        dice = random.Random(step.victim)
        running = self.stage.of_role(*AT_WORK)
        for victim in dice.sample(running, len(running)):
            with self._machine:
                self.stage.replace(victim, signal.SIGTERM)
        return f"{len(running)} clients", None

    def suspend_machine(self, step: Step) -> tuple[str, Undo]:
        """Stop a client, and its monotonic clocks with it; all of them where they share one machine's clock.

        No client is replaced meanwhile: the clocks of one that started then would go back.
        """
        self._machine.acquire()
        try:
            alone = not self.target.goes_by_client_clock
            victims = [self._victim(step, *AT_WORK)] if alone else self.stage.of_role(*AT_WORK)
        except RuntimeError:
            self._machine.release()
            raise
        dials = {self.stage.dials[each.name.partition(".")[0]] for each in victims}
        self._suspended = victims
        for each in victims:
            each.send(signal.SIGSTOP)
        return ", ".join(each.name for each in victims), partial(self._wake, dials, time.monotonic_ns())

    def _wake(self, dials: set[Dial], since: int) -> None:
        """Let them go on. The clock of one that ended must not go back."""
        victims, self._suspended = self._suspended, []
        if all(each.is_stopped for each in victims):
            for dial in dials:
                dial.asleep += time.monotonic_ns() - since
        for each in victims:
            each.send(signal.SIGCONT)
        self._machine.release()

    # -- clocks

    def skew_clock(self, step: Step) -> tuple[str, Undo | None]:
        """One client's clock where the store has its own, for a while; that of the machine where the store has none.

        The machine's clock goes ahead for good, and back by what it went ahead before, but never behind true time. It
        goes ahead by minutes only: after hours the parts of a large body that is being sent count as abandoned.
        """
        if self.target.goes_by_client_clock:
            dial = next(iter(self.stage.dials.values()))
            back = step.victim < 0.3
            ahead = (
                dial.ahead - step.strength * 5e9 if back else dial.ahead + step.strength * FIVE_MINUTES * 1e9
            )
            before, dial.ahead = dial.ahead, max(0, int(ahead))
            undo = partial(_set_ahead, dial, before) if dial.ahead < before else None
            return f"all, {dial.ahead / 1e9:+.1f} s", undo
        victim = self._victim(step, *AT_WORK)
        dial = self.stage.dials[victim.name.partition(".")[0]]
        dial.ahead = int(_offset(step.strength) * 1e9)
        return f"{victim.name}, {dial.ahead / 1e9:+.1f} s", partial(_put_right, dial)

    # -- the queue

    def change_layout(self, step: Step) -> tuple[str, None]:
        shards, time_shards, seconds = LAYOUTS[int(step.victim * len(LAYOUTS))]
        self.client.queue(self.queue).alter(
            shards=shards, time_shards=time_shards, time_shard_seconds=seconds
        )
        return f"{shards} x {time_shards} x {seconds} s", None

    def shard_away(self, step: Step) -> tuple[str, Undo]:
        """One shard cannot be reached for any client; and the others of another queue have to go on meanwhile."""
        losses = list(Loss)
        loss = losses[int(step.strength * len(losses))]
        shards, time_shards, _ = LAYOUTS[0]
        place = int(step.victim * shards * time_shards)
        dials = {self.stage.dials[each.name.partition(".")[0]] for each in self.stage.of_role(*AT_WORK)}
        for dial in dials:
            dial.away = (place % time_shards, place // time_shards, loss)
        undo = partial(_bring_back, dials)
        try:
            with closing(open_store(self.target.url, SystemClock())) as store:
                dial = Dial(self.stage.folder / "nemesis.dial")
                name = f"{self.queue}.partly"
                self.problems += go_on_without_a_shard(store, dial, name, loss, self.target.patience)
        except BaseException:
            undo()
            raise
        return f"{place % time_shards}:{place // time_shards}, {loss.name.lower()}", undo

    def fill_disk(self, _: Step) -> tuple[str, Undo]:
        assert self.target.disk is not None
        self.target.disk.fill()
        return "full", self.target.disk.free

    # -- nodes

    def kill_node(self, step: Step) -> tuple[str, Undo]:
        return self._end_node(step, signal.SIGKILL)

    def restart_node(self, step: Step) -> tuple[str, Undo]:
        return self._end_node(step, signal.SIGTERM)

    def _end_node(self, step: Step, how: signal.Signals) -> tuple[str, Undo]:
        node = self.target.node(step.victim)
        pid = self.target.pid(node)
        os.kill(pid, how)
        return f"node {node + 1}", partial(self._start_again, pid)

    def pause_node(self, step: Step) -> tuple[str, Undo]:
        node = self.target.node(step.victim)
        pid = self.target.pid(node)
        os.kill(pid, signal.SIGSTOP)
        return f"node {node + 1}", partial(os.kill, pid, signal.SIGCONT)

    # -- connections

    def _paths(self, step: Step) -> tuple[list[Proxy], str]:
        """One node's connections, or all."""
        if step.strength < 0.25:
            return list(self.target.proxies), "all nodes"
        number = self.target.node(step.victim)
        return [self.target.proxies[number]], f"node {number + 1}"

    def cut_connections(self, step: Step) -> tuple[str, Undo]:
        paths, name = self._paths(step)
        for each in paths:
            each.refuses = True
            each.cut()
        return name, partial(_heal, paths)

    def delay_connections(self, step: Step) -> tuple[str, Undo]:
        paths, name = self._paths(step)
        for each in paths:
            each.delay = 0.02 + step.strength * 0.5
        return f"{name}, {paths[0].delay:.2f} s", partial(_heal, paths)

    def swallow_answers(self, step: Step) -> tuple[str, Undo]:
        paths, name = self._paths(step)
        for each in paths:
            each.swallows = True
        return name, partial(_heal, paths)


def _bring_back(dials: set[Dial]) -> None:
    for dial in dials:
        dial.away = None


def _offset(strength: float) -> float:
    """Seconds that a client's clock is ahead: up to five minutes, ahead or behind, and one time in four hours."""
    if abs(strength - 0.5) < 0.375:
        return (strength - 0.5) / 0.375 * FIVE_MINUTES
    return THREE_HOURS if strength > 0.5 else -THREE_HOURS


def _put_right(dial: Dial) -> None:
    dial.ahead = 0


def _set_ahead(dial: Dial, ahead: int) -> None:
    dial.ahead = max(dial.ahead, ahead)


def _heal(proxies: list[Proxy]) -> None:
    for proxy in proxies:
        proxy.heal()
