"""Carries out the schedule, and undoes in time what lasts. Deeds that take their time go on beside it."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable

import msgspec

import shardq

from .faults import Faults, Undo
from .lanes import Lanes
from .schedule import Step, schedule
from .stage import Stage, has_ended
from .target import Target

__all__ = ["Deed", "Nemesis"]

SHUTDOWN = 20.0
PATIENCE = 30.0  # seconds in which another fault, such as a full disk, may keep one from being done


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the nemesis did, for the report."""

    at: int
    fault: str
    what: str
    error: str = ""


class Nemesis:
    """Does everything when it is due; what lasts is undone when its time is over, and all of it at the end."""

    def __init__(self, target: Target, stage: Stage, client: shardq.Client, queue: str) -> None:
        self.target, self.stage, self.client = target, stage, client
        self._faults = Faults(target, stage, client, queue, self._start_again)
        self.deeds: list[Deed] = []
        self._undo: list[tuple[float, str, Undo]] = []
        self._lanes = Lanes(self._do_to_the_end)
        self._over = threading.Event()

    @property
    def problems(self) -> list[str]:
        """What was found wrong on the way."""
        return self._faults.problems

    # -- what there is

    def faults(self) -> list[str]:
        """Faults that the target can meet and that leave its nodes alone."""
        found = [
            "kill_producer",
            "kill_consumer",
            "kill_keeper",
            "kill_prefetcher",
            "kill_mover",
            "kill_subscriber",
            "kill_runners",
            "kill_reader",
            "kill_pool",
            "interrupt_client",
            "pause_producer",
            "pause_consumer",
            "pause_keeper",
            "pause_prefetcher",
            "pause_mover",
            "pause_subscriber",
            "pause_runner",
            "pause_reader",
        ]
        found += ["skew_clock", "change_layout", "purge_bystander", "roll_clients"]
        found += ["suspend_machine", "shard_away", "recreate_bystander", "purge_many", "purge_huge"]
        found += ["fill_disk"] if self.target.disk else []
        found += ["kill_saver"] if self.target.has_backups else []
        return found + (
            ["cut_connections", "delay_connections", "swallow_answers"] if self.target.proxies else []
        )

    def node_faults(self) -> list[str]:
        """Faults of a node."""
        return ["kill_node", "pause_node", "restart_node"] if self.target.nodes else []

    def plan(self, seed: str, seconds: float) -> list[Step]:
        """The steps of a round that lasts so long."""
        target = self.target
        return schedule(
            self.faults(),
            self.node_faults(),
            seed=seed,
            seconds=seconds,
            gap=target.gap,
            lasting=target.lasting,
            rest=target.rest,
        )

    # -- doing it

    def run(self, steps: list[Step], seconds: float) -> None:
        """Carry out the steps; returns when the last is done."""
        began = time.monotonic()
        for step in steps:
            self._wait_until(began + step.at)
            if not self._lanes.take(step):
                self._do(step)
        self._wait_until(began + seconds)
        self._faults.over.set()
        while not self._lanes.are_free():
            self._wait_until(time.monotonic() + 0.05)

    def heal(self) -> None:
        """Undo everything, and let the store and the clients be whole."""
        self._over.set()
        self._faults.over.set()
        self._lanes.finish()
        for _, name, undo in sorted(self._undo, key=lambda each: each[0]):
            self._carry_out(name, "healed", undo)
        self._undo.clear()
        self._faults.finish()
        self.deeds += [Deed(at, "purge_huge", what) for at, what in self._faults.told]
        self._faults.told.clear()
        for proxy in self.target.proxies:
            proxy.heal()
        for actor in self.stage.actors:
            actor.send(signal.SIGCONT)

    def _wait_until(self, moment: float) -> None:
        self._undo_what_is_over()
        while (now := time.monotonic()) < moment:
            time.sleep(min(0.05, moment - now))
            self._undo_what_is_over()

    def _undo_what_is_over(self) -> None:
        """Undo what has lasted long enough."""
        now = time.monotonic()
        for due in [each for each in self._undo if each[0] <= now]:
            self._undo.remove(due)
            self._carry_out(due[1], "healed", due[2])

    def _do(self, step: Step) -> None:
        what, undo = self._act(step)
        if undo:
            self._undo.append((time.monotonic() + step.seconds, f"{step.fault} {what}", undo))

    def _do_to_the_end(self, step: Step) -> None:
        what, undo = self._act(step, patience=PATIENCE)
        if undo:
            self._over.wait(step.seconds)
            self._carry_out(f"{step.fault} {what}", "healed", undo)

    def _act(self, step: Step, *, patience: float = 0.0) -> tuple[str, Undo | None]:
        """Do it, again where another fault keeps the store from answering, and write down what was done."""
        act: Callable[[Step], tuple[str, Undo | None]] = getattr(self._faults, step.fault)
        until = time.monotonic() + patience
        while True:
            started = time.monotonic_ns()
            try:
                what, undo = act(step)
            except (shardq.ShardqError, sqlite3.Error) as error:
                failed: Exception = error
            except (OSError, RuntimeError) as error:
                failed, until = error, 0.0
            else:
                self.deeds.append(Deed(started, step.fault, what))
                return what, undo
            if time.monotonic() > until:
                self.deeds.append(Deed(started, step.fault, "failed", str(failed)[:300]))
                return "failed", None
            time.sleep(0.1)

    def _carry_out(self, name: str, what: str, do: Undo) -> None:
        try:
            do()
            self.deeds.append(Deed(time.monotonic_ns(), name, what))
        except (OSError, RuntimeError) as error:
            self.deeds.append(Deed(time.monotonic_ns(), name, what, str(error)[:300]))

    def _start_again(self, pid: int) -> None:
        """Start what does not run; the next fault of a node waits for it."""
        _wait_for_end(pid)
        self._carry_out("restart", "nodes run", self.target.restart)


def _wait_for_end(pid: int) -> None:
    """Wait until a server that was told to end has ended; whoever takes too long is killed."""
    until = time.monotonic() + SHUTDOWN
    while not has_ended(pid):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
