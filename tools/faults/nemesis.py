"""Carries out the schedule, and undoes in time what lasts."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

import shardq

from .faults import Faults, Undo
from .schedule import Step, schedule
from .stage import Stage
from .target import Target

__all__ = ["Deed", "Nemesis"]

SHUTDOWN = 20.0


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the nemesis did, for the report."""

    at: int
    fault: str
    what: str
    error: str = ""


class Nemesis:
    """Does one thing after the other; what lasts is undone when its time is over, and all of it at the end."""

    def __init__(self, target: Target, stage: Stage, client: shardq.Client, queue: str) -> None:
        self.target, self.stage, self.client = target, stage, client
        self._faults = Faults(target, stage, client, queue, self._start_again)
        self.deeds: list[Deed] = []
        self._undo: list[tuple[float, str, Undo]] = []
        self._restarting: threading.Thread | None = None

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
            "pause_producer",
            "pause_consumer",
            "pause_keeper",
            "pause_prefetcher",
            "pause_mover",
        ]
        found += ["skew_clock", "change_layout", "purge_bystander", "roll_clients"]
        found += ["suspend_machine", "shard_away", "recreate_bystander", "purge_many", "purge_huge"]
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

    def _undo_what_is_over(self, *, of_nodes: bool = False) -> None:
        """Undo what has lasted long enough; of what was done to nodes, all of it."""
        nodes = tuple(self.node_faults()) if of_nodes else ()
        now = time.monotonic()
        for due in [each for each in self._undo if each[0] <= now or each[1].startswith(nodes)]:
            self._undo.remove(due)
            self._carry_out(due[1], "healed", due[2])

    def _do(self, step: Step) -> None:
        act: Callable[[Step], tuple[str, Undo | None]] = getattr(self._faults, step.fault)
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

    # -- nodes

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
