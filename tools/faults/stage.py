"""The client processes of a round: started, killed, paused, replaced, asked to leave."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from .assignment import Assignment
from .dial import Dial
from .history import Phase, read_history

__all__ = ["AT_WORK", "CONSUMERS", "SENDERS", "SLOW_SENDERS", "Actor", "Stage", "has_ended"]

ROOT = Path(__file__).parents[2]
LEAVING = 15.0  # seconds that a client has to end by itself
# Roles that end when their work is done.
SENDERS = ("produce", "supply", "ask", "publish", "order", "film", "offer", "save")
SLOW_SENDERS = ("spark",)  # like SENDERS, but never stopped or replaced: they take seconds to start
CONSUMERS = ("work", "keep", "ahead", "overlap")  # roles, until the queue is drained
AT_WORK = (*SENDERS, *CONSUMERS, "move", "answer", "permit", "subscribe", "tick", "run", "watch", "pool")


class Actor:
    """A running client and what it was told."""

    def __init__(self, assignment: Assignment, folder: Path) -> None:
        self.assignment = assignment
        command = [sys.executable, "-m", "tools.faults.actor", msgspec.json.encode(assignment).decode()]
        with (folder / f"{assignment.name}.err").open("ab") as errors:
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=errors, stdin=subprocess.PIPE)

    @property
    def role(self) -> str:
        return self.assignment.role

    @property
    def name(self) -> str:
        return self.assignment.name

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    @property
    def has_begun(self) -> bool:
        """It runs, and has written down its first operation."""
        return self.runs and Path(self.assignment.log).stat().st_size > 0

    @property
    def is_stopped(self) -> bool:
        """It does not run, but would go on."""
        try:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:
            return False

    @property
    def children(self) -> list[int]:
        """The processes that it has started, such as those of a pool."""
        try:
            return [
                *map(
                    int,
                    Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split(),
                )
            ]
        except OSError:
            return []

    def send(self, what: signal.Signals) -> None:
        """Send it a signal, or to all of its processes one that lets them stand still or go on."""
        _send(self.process.pid, what)
        if what in (signal.SIGSTOP, signal.SIGCONT):
            for pid in self.children:  # which are no more from now on if it was stopped
                _send(pid, what)

    def end(self, how: signal.Signals) -> None:
        """End it; one that does not leave by itself is killed."""
        self.send(signal.SIGCONT)
        self.send(how)
        try:
            self.process.wait(timeout=LEAVING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the pipe by which it notices the end of the campaign."""
        if self.process.stdin is not None:
            self.process.stdin.close()


def _send(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def has_ended(pid: int) -> bool:
    """True when a process runs no more, also when its parent has not noticed yet."""
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


class Stage:
    """All clients of a round. Those that end are replaced by ones that go on with their work."""

    def __init__(self, folder: Path, template: Assignment, seed: str) -> None:
        self.folder, self._template, self._seed = folder, template, seed
        self._lock = threading.Lock()
        self.actors: list[Actor] = []
        self.logs: list[Path] = []
        self.dials: dict[str, Dial] = {}
        """That of each place. Clients of one machine share one, which must be changed once for all of them."""
        self._opened: dict[Path, Dial] = {}
        self._generations: dict[str, int] = {}

    def start(
        self,
        role: str,
        place: str,
        *,
        first: int = 0,
        messages: int = 0,
        queue: str = "",
        rate: float = 0.0,
    ) -> Actor:
        """Start a client at a place such as ``p1``: the next one there if it had others before."""
        generation = self._generations[place] = self._generations.get(place, 0) + 1
        name = f"{place}.{generation}"
        dice = random.Random(f"{self._seed} {name}")
        shared = self._template.store_goes_by_clock
        dial = self.folder / ("shared.dial" if shared else f"{place}.dial")
        if dial not in self._opened:
            self._opened[dial] = Dial(dial)
        self.dials[place] = self._opened[dial]
        assignment = msgspec.structs.replace(
            self._template,
            role=role,
            name=name,
            seed=dice.randrange(2**32),
            queue=queue or self._template.queue,
            log=str(self.folder / f"{name}.jsonl"),
            dial=str(dial),
            first=first,
            messages=messages,
            rate=rate or self._template.rate,
            sleeps=role not in SLOW_SENDERS,
            retry_seconds=dice.choice([0.0, 2.0, 15.0]),
        )
        Path(assignment.log).touch()
        self.logs.append(Path(assignment.log))
        actor = Actor(assignment, self.folder)
        self.actors.append(actor)
        return actor

    def of_role(self, *roles: str) -> list[Actor]:
        return [actor for actor in list(self.actors) if actor.role in roles and actor.runs]

    def replace(self, actor: Actor, how: signal.Signals) -> None:
        """End a client and start the next one in its place; nothing where another fault did so meanwhile."""
        with self._lock:
            if actor not in self.actors:
                return
            self.actors.remove(actor)
        actor.end(how)
        told = actor.assignment
        begun = self._begun(actor) if actor.role in SENDERS else 0
        if actor.role not in SENDERS or begun < told.messages:
            self.start(
                actor.role,
                actor.name.partition(".")[0],
                first=told.first + begun,
                messages=told.messages - begun,
                queue=told.queue,
                rate=told.rate,
            )

    def unfinished(self) -> list[str]:
        """Clients that run and still have something to do."""
        return [
            actor.name
            for actor in self.of_role(*AT_WORK)
            if actor.role not in SENDERS or self._begun(actor) < actor.assignment.messages
        ]

    def deaths(self) -> list[str]:
        """Clients that ended by themselves and with an error."""
        return [actor.name for actor in self.actors if actor.process.poll() not in (None, 0)]

    def wait_until_at_work(self, seconds: float) -> None:
        """Wait until every client has written down its first operation; raises RuntimeError when one does not."""
        until = time.monotonic() + seconds
        while idle := [path.stem for path in self.logs if not path.stat().st_size]:
            if time.monotonic() > until:
                raise RuntimeError(f"clients did not begin within {seconds:g} s: {', '.join(idle)}")
            time.sleep(0.05)

    def hurry(self) -> None:
        for dial in self.dials.values():
            dial.hurry = True

    def wait_for(self, *roles: str, seconds: float) -> bool:
        """Wait until all clients of these roles have done their work."""
        until = time.monotonic() + seconds
        while self.of_role(*roles) and time.monotonic() < until:
            time.sleep(0.1)
        return not self.of_role(*roles)

    def kill(self, *roles: str) -> None:
        """End all clients of these roles for good; that they died is no fault of theirs."""
        for actor in self.of_role(*roles):
            self.actors.remove(actor)
            actor.end(signal.SIGKILL)

    def end(self, *roles: str) -> None:
        """Let clients of these roles leave for good, or all of them."""
        leaving = [actor for actor in self.actors if actor.runs and (not roles or actor.role in roles)]
        self.actors = [actor for actor in self.actors if actor not in leaving]
        for actor in leaving:
            actor.send(signal.SIGCONT)
            actor.send(signal.SIGTERM)
        for actor in leaving:
            actor.end(signal.SIGTERM)
        for actor in [] if roles else self.actors:  # which have ended before
            actor.close()

    def _begun(self, actor: Actor) -> int:
        """How many numbers it has used up for its messages, each of which ends with its number."""
        told = actor.assignment
        used = (
            int(body.rpartition("-")[2])
            for each in read_history([Path(told.log)])
            if each.verb in ("send", "supply", "ask", "publish", "order", "film", "offer", "save")
            and each.phase is Phase.INVOKE
            for body in each.bodies
        )
        return max(used, default=told.first - 1) + 1 - told.first
