"""Carries out the schedule: what each fault does, and how it is undone."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

import shardq

from .dial import Dial
from .proxy import Proxy
from .schedule import Step, schedule
from .stage import Actor, Stage
from .target import Target

__all__ = ["Deed", "Nemesis"]

FIVE_MINUTES = 300.0
SHUTDOWN = 20.0
LAYOUTS = ((2, 3, 1.0), (5, 4, 0.7), (1, 6, 2.0), (8, 2, 5.0))

Undo = Callable[[], None]


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the nemesis did, for the report."""

    at: int
    fault: str
    what: str
    error: str = ""


class Nemesis:
    """Does one thing after the other; what lasts is undone when its time is over, and all of it at the end."""

    def __init__(self, target: Target, stage: Stage, client: shardq.Client, queue: str) -> None:
        self.target, self.stage, self.client, self.queue = target, stage, client, queue
        self.deeds: list[Deed] = []
        self._undo: list[tuple[float, str, Undo]] = []
        self._restarting: threading.Thread | None = None

    # -- what there is

    def faults(self) -> list[str]:
        """Faults that the target can meet and that leave its nodes alone."""
        found = [
            "kill_producer",
            "kill_consumer",
            "kill_keeper",
            "pause_producer",
            "pause_consumer",
            "pause_keeper",
        ]
        found += ["skew_clock", "change_layout", "purge_bystander", "roll_clients"]
        found += ["fill_disk"] if self.target.disk else []
        return found + (
            ["cut_connections", "delay_connections", "swallow_answers"] if self.target.proxies else []
        )

    def node_faults(self) -> list[str]:
        """Faults of a node."""
        return ["kill_node", "pause_node", "restart_node"] if self.target.nodes else []

    def plan(self, seed: str, seconds: float) -> list[Step]:
        """The steps of a round that lasts so long."""
        return schedule(self.faults(), self.node_faults(), seed=seed, seconds=seconds, gap=self.target.gap)

    # -- doing it

    def run(self, steps: list[Step], seconds: float) -> None:
        """Carry out the steps; returns when the last is done."""
        began = time.monotonic()
        for step in steps:
            self._wait_until(began + step.at)
            self._do(step)
        self._wait_until(began + seconds)

    def heal(self) -> None:
        """Undo everything, and let the store and the clients be whole."""
        for _, name, undo in sorted(self._undo, key=lambda each: each[0]):
            self._carry_out(name, "healed", undo)
        self._undo.clear()
        self._wait_for_restart()
        for proxy in self.target.proxies:
            proxy.heal()
        for actor in self.stage.actors:
            actor.send(signal.SIGCONT)

    def _wait_until(self, moment: float) -> None:
        self._undo_what_is_over()
        while (now := time.monotonic()) < moment:
            time.sleep(min(0.05, moment - now))
            self._undo_what_is_over()

    def _undo_what_is_over(self, *, of_nodes: bool = False) -> None:
        """Undo what has lasted long enough; of what was done to nodes, all of it."""
        nodes = tuple(self.node_faults()) if of_nodes else ()
        now = time.monotonic()
        for due in [each for each in self._undo if each[0] <= now or each[1].startswith(nodes)]:
            self._undo.remove(due)
            self._carry_out(due[1], "healed", due[2])

    def _do(self, step: Step) -> None:
        act: Callable[[Step], tuple[str, Undo | None]] = getattr(self, f"_{step.fault}")
        if step.fault in self.node_faults():  # one at a time, even where the steps come late
            self._undo_what_is_over(of_nodes=True)
            self._wait_for_restart()
        started = time.monotonic_ns()
        try:
            what, undo = act(step)
        except (shardq.ShardqError, sqlite3.Error, OSError, RuntimeError) as error:
            self.deeds.append(Deed(started, step.fault, "failed", str(error)[:300]))
            return
        self.deeds.append(Deed(started, step.fault, what))
        if undo:
            self._undo.append((time.monotonic() + step.seconds, f"{step.fault} {what}", undo))

    def _carry_out(self, name: str, what: str, do: Undo) -> None:
        try:
            do()
            self.deeds.append(Deed(time.monotonic_ns(), name, what))
        except (OSError, RuntimeError) as error:
            self.deeds.append(Deed(time.monotonic_ns(), name, what, str(error)[:300]))

    # -- clients

    def _victim(self, step: Step, *roles: str) -> Actor:
        found = self.stage.of_role(*roles)
        if not found:
            raise RuntimeError(f"there is no {' or '.join(roles)} to hit")
        return found[int(step.victim * len(found))]

    def _kill(self, step: Step, role: str) -> tuple[str, None]:
        victim = self._victim(step, role)
        self.stage.replace(victim, signal.SIGKILL)
        return victim.name, None

    def _pause(self, step: Step, role: str) -> tuple[str, Undo]:
        """Stop a client, often for longer than its lease."""
        victim = self._victim(step, role)
        victim.send(signal.SIGSTOP)
        return victim.name, partial(victim.send, signal.SIGCONT)

    def _kill_producer(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "produce")

    def _kill_consumer(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "work")

    def _kill_keeper(self, step: Step) -> tuple[str, None]:
        return self._kill(step, "keep")

    def _pause_producer(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "produce")

    def _pause_consumer(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "work")

    def _pause_keeper(self, step: Step) -> tuple[str, Undo]:
        return self._pause(step, "keep")

    def _roll_clients(self, step: Step) -> tuple[str, None]:
        """Replace the clients one after the other, as a release of an application does."""
        dice = random.Random(step.victim)
        running = self.stage.of_role("produce", "work", "keep")
        for victim in dice.sample(running, len(running)):
            self.stage.replace(victim, signal.SIGTERM)
        return f"{len(running)} clients", None

    # -- clocks

    def _skew_clock(self, step: Step) -> tuple[str, Undo | None]:
        """One client's clock where the store has its own; that of the machine where the store has none.

        The machine's clock goes ahead for good, and back by what it went ahead before, but never behind true time.
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
        victim = self._victim(step, "produce", "work", "keep")
        dial = self.stage.dials[victim.name.partition(".")[0]]
        dial.ahead = int((step.strength * 2 - 1) * FIVE_MINUTES * 1e9)
        return f"{victim.name}, {dial.ahead / 1e9:+.1f} s", None

    # -- the queue

    def _change_layout(self, step: Step) -> tuple[str, None]:
        shards, time_shards, seconds = LAYOUTS[int(step.victim * len(LAYOUTS))]
        self.client.queue(self.queue).alter(
            shards=shards, time_shards=time_shards, time_shard_seconds=seconds
        )
        return f"{shards} x {time_shards} x {seconds} s", None

    def _purge_bystander(self, _: Step) -> tuple[str, None]:
        """Fill and purge another queue, whose name starts like that of the queue under test."""
        bystander = self.client.queue(f"{self.queue}.bystander")
        with bystander.producer(bundle_messages=20) as producer:
            producer.send_many(f"bystander-{number}".encode() for number in range(50))
        return f"{bystander.purge()} messages", None

    def _fill_disk(self, _: Step) -> tuple[str, Undo]:
        assert self.target.disk is not None
        self.target.disk.fill()
        return "full", self.target.disk.free

    # -- nodes

    def _kill_node(self, step: Step) -> tuple[str, Undo]:
        return self._end_node(step, signal.SIGKILL)

    def _restart_node(self, step: Step) -> tuple[str, Undo]:
        return self._end_node(step, signal.SIGTERM)

    def _end_node(self, step: Step, how: signal.Signals) -> tuple[str, Undo]:
        node = self.target.node(step.victim)
        pid = self.target.pid(node)
        os.kill(pid, how)
        return f"node {node + 1}", partial(self._start_again, pid)

    def _pause_node(self, step: Step) -> tuple[str, Undo]:
        node = self.target.node(step.victim)
        pid = self.target.pid(node)
        os.kill(pid, signal.SIGSTOP)
        return f"node {node + 1}", partial(os.kill, pid, signal.SIGCONT)

    def _start_again(self, pid: int) -> None:
        """Start what does not run, beside the other faults; the next fault of a node waits for it."""
        self._wait_for_restart()
        self._restarting = threading.Thread(target=self._restart, args=(pid,))
        self._restarting.start()

    def _restart(self, pid: int) -> None:
        _wait_for_end(pid)
        self._carry_out("restart", "nodes run", self.target.restart)

    def _wait_for_restart(self) -> None:
        if self._restarting:
            self._restarting.join()
            self._restarting = None

    # -- connections

    def _paths(self, step: Step) -> tuple[list[Proxy], str]:
        """One node's connections, or all."""
        if step.strength < 0.25:
            return list(self.target.proxies), "all nodes"
        number = self.target.node(step.victim)
        return [self.target.proxies[number]], f"node {number + 1}"

    def _cut_connections(self, step: Step) -> tuple[str, Undo]:
        paths, name = self._paths(step)
        for each in paths:
            each.refuses = True
            each.cut()
        return name, partial(_heal, paths)

    def _delay_connections(self, step: Step) -> tuple[str, Undo]:
        paths, name = self._paths(step)
        for each in paths:
            each.delay = 0.02 + step.strength * 0.5
        return f"{name}, {paths[0].delay:.2f} s", partial(_heal, paths)

    def _swallow_answers(self, step: Step) -> tuple[str, Undo]:
        paths, name = self._paths(step)
        for each in paths:
            each.swallows = True
        return name, partial(_heal, paths)


def _set_ahead(dial: Dial, ahead: int) -> None:
    dial.ahead = max(dial.ahead, ahead)


def _heal(proxies: list[Proxy]) -> None:
    for proxy in proxies:
        proxy.heal()


def _wait_for_end(pid: int) -> None:
    """Wait until a server that was told to end has ended; whoever takes too long is killed."""
    until = time.monotonic() + SHUTDOWN
    while _runs(pid):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
