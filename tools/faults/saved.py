"""Backups that are made beside running clients: each is one state of the queues, or it is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import shardq
from shardq.base.clock import SystemClock
from shardq.client import Client
from shardq.storage.abilities import SavedStore
from shardq.storage.opening import open_store

from .behind import audit
from .dial import true_monotonic_ns
from .history import Delivery, Event, Log, Phase
from .lives import Life, Lives, Operation, operations_of
from .offence import SHOWN, Offence
from .role import name_of
from .stage import Stage
from .target import Target

__all__ = ["audit_saved", "backup_of", "judge_saved", "parts_in", "start_saving"]

BACKUPS = 4  # of a round
_MOST = 1_000_000  # messages of a queue


def backup_of(folder: Path, name: str) -> Path:
    """The file of the backup of that name."""
    return folder / f"{name}.backup"


def parts_in(folder: Path) -> list[Path]:
    """What is written of backups that are not complete."""
    return list(folder.glob("*.backup.*"))


def start_saving(stage: Stage, target: Target, seconds: float) -> None:
    """Start the client that makes backups, where the store has them."""
    if target.has_backups:
        stage.start("save", "z1", messages=BACKUPS, rate=BACKUPS / seconds)


def audit_saved(target: Target, stage: Stage, queue: str) -> list[str]:
    """Restore each backup, write down what it has of the queue, and name what is wrong with its rows.

    One restore replaces what the one before it has left. The backups are removed.
    """
    if not target.has_backups:
        return []
    queues, other = [queue, f"{queue}.dead"], target.beside(stage.folder / "restored")
    path, problems = stage.folder / "restored.jsonl", list[str]()
    log = Log(path)
    stage.logs.append(path)
    for number, backup in enumerate(sorted(stage.folder.glob("*.backup")), start=1):
        try:
            found = _restored(backup, other, queues)
        except shardq.ShardqError as error:
            problems.append(f"{backup.name} could not be restored: {error}")
        else:
            event = Event(
                at=true_monotonic_ns(),
                actor="restored",
                number=number,
                verb="restored",
                phase=Phase.OK,
                bodies=(backup.stem,),
                deliveries=tuple(found),
            )
            log.write(event)
            problems += [f"{backup.name}, {each}" for each in audit(other, queues)]
        backup.unlink()
    for part in parts_in(stage.folder):
        part.unlink()
    return problems


def _restored(backup: Path, other: Target, queues: Sequence[str]) -> list[Delivery]:
    """Restore a backup into another file, and list the messages that these queues have then."""
    with closing(open_store(other.url, SystemClock())) as store:
        cast("SavedStore", store).restore(str(backup))
    with Client(open_store(other.url, SystemClock())) as client:
        return [
            Delivery(name_of(each.body), each.id, each.priority, 0, each.deliveries)
            for name in queues
            for each in client.queue(name).peek(_MOST)
        ]


def judge_saved(events: Sequence[Event], lives: Lives) -> list[Offence]:
    """What a backup lacks, or has against the history. Its state is of a moment between its beginning and its end."""
    restored = {event.bodies[0]: event.deliveries for event in events if event.verb == "restored"}
    found: dict[str, dict[str, tuple[Event, ...]]] = {}
    for saving in operations_of(events, "save"):
        (name,) = saving.invoked.bodies
        if name in restored:
            bodies = Counter(each.body for each in restored[name])
            for promise, life in _broken(saving, bodies, lives):
                shown = sorted((*life.events(), saving.invoked), key=lambda event: event.at)
                found.setdefault(promise, {})[f"{life.body} in {name}"] = tuple(shown)
        elif saving.phase(name) is Phase.OK:
            found.setdefault("backup that is gone", {})[name] = (saving.invoked,)
    return [
        Offence(promise, len(histories), dict(list(histories.items())[:SHOWN]))
        for promise, histories in found.items()
    ]


def _broken(saving: Operation, bodies: Mapping[str, int], lives: Lives) -> Iterator[tuple[str, Life]]:
    began, ended = saving.invoked.at, saving.ended
    for life in [lives.by_body.get(body, Life(body)) for body in bodies]:
        sending = life.sending
        if sending is None or sending.phase(life.body) is Phase.FAILED or sending.invoked.at > ended:
            yield "in a backup and not sent", life
        if any(ack.ended < began for ack in life.settled("ack", Phase.OK)):
            yield "in a backup and acked", life
        if bodies[life.body] > 1:
            yield "twice in a backup", life
    for life in lives.by_body.values():
        if life.body not in bodies and _was_there(life, began, ended):
            yield "not in a backup", life


def _was_there(life: Life, began: float, ended: float) -> bool:
    """Its send was confirmed before the backup began, and nobody can have finished it before that ended."""
    sending = life.sending
    if sending is None or sending.phase(life.body) is not Phase.OK or sending.ended >= began:
        return False
    finishes = [ack.invoked.at for ack in life.settled("ack", Phase.OK, Phase.UNKNOWN)]
    finishes += [each.asked.at for each in life.burials]  # by who collects dead letters
    return min(finishes, default=float("inf")) > ended
