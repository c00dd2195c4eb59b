"""What the campaign says of backups that are made beside running clients, and of what a restore brings back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from shardq.base.clock import SystemClock
from shardq.base.waits import Flag
from shardq.client import Client
from shardq.storage.abilities import SavedStore
from shardq.storage.opening import open_store
from tests.faults.written_history import Script, delivery
from tools.faults import faults, stage
from tools.faults.assignment import Assignment
from tools.faults.defects import with_defect
from tools.faults.dial import Dial
from tools.faults.history import Event, Phase, read_history
from tools.faults.lives import Lives
from tools.faults.saved import audit_saved, backup_of, judge_saved
from tools.faults.saving import Saving
from tools.faults.schedule import Step
from tools.faults.sqlite_target import SqliteTarget
from tools.faults.stage import Actor

BEGIN, END = 10.0, 12.0  # of the backup
STEP = Step(0.0, "", 0.5, 1.0, 0.0)


class Saved(Script):
    """A message ``m``, and a backup of it."""

    def work(self, at: float, **how: Any) -> Self:
        """Ack it then."""
        return self.get(at - 1).ack("m", at, **how)

    def save(self, *restored: str, phase: Phase | None = Phase.OK) -> Self:
        """Make a backup, which had these messages when it was restored."""
        self.operation("save", "z1.1", BEGIN, took=END - BEGIN, phase=phase, begins={"bodies": ("z1-0",)})
        given = tuple(delivery(body) for body in restored)
        self.event("restored", "restored", 99, Phase.OK, number=1, bodies=("z1-0",), deliveries=given)
        return self

    def save_in_vain(self, phase: Phase) -> Self:
        """Make a backup that is not there in the end."""
        self.operation("save", "z1.1", BEGIN, took=END - BEGIN, phase=phase, begins={"bodies": ("z1-0",)})
        return self


def sent(at: float = 1.0, phase: Phase | None = Phase.OK) -> Saved:
    return Saved().send("m", at, phase=phase)


CASES: dict[str, tuple[Saved, str]] = {
    "a message that waits is in the backup": (sent().save("m").work(20), ""),
    "a message that waits is not in the backup": (sent().save().work(20), "not in a backup"),
    "a dead letter is in the backup": (sent().save("m").get(20, verb="bury"), ""),
    "a dead letter is not in the backup": (sent().save().get(20, verb="bury"), "not in a backup"),
    "a dead letter was collected meanwhile": (sent().save().get(11, verb="bury"), ""),
    "a message was acked before": (sent().work(5).save(), ""),
    "a message was acked before, and is in the backup": (sent().work(5).save("m"), "in a backup and acked"),
    "a message whose ack was refused is not in the backup": (
        sent().work(5, phase=Phase.LOST).save().work(20),
        "not in a backup",
    ),
    "a message whose ack is unknown may be there": (sent().work(5, phase=None).save("m").work(20), ""),
    "a message whose ack is unknown may be gone": (sent().work(5, phase=None).save(), ""),
    "a message that was acked meanwhile may be there": (sent().work(11).save("m"), ""),
    "a message that was acked meanwhile may be gone": (sent().work(11).save(), ""),
    "a message that was sent meanwhile may be there": (sent(11).save("m").work(20), ""),
    "a message that was sent meanwhile may not be there": (sent(11).save().work(20), ""),
    "a message that was sent later is there": (sent(13).save("m").work(20), "in a backup and not sent"),
    "a message whose send is unknown may be there": (sent(phase=None).save("m").work(20), ""),
    "a message whose send failed is there": (sent(phase=Phase.FAILED).save("m"), "in a backup and not sent"),
    "a message that nobody sent is there": (Saved().save("m"), "in a backup and not sent"),
    "a message is there twice": (sent().save("m", "m").work(20), "twice in a backup"),
    "a backup whose client was killed may have ended late": (sent().work(20).save(phase=None), ""),
    "a backup whose client was killed has what was acked": (
        sent().work(5).save("m", phase=None),
        "in a backup and acked",
    ),
    "a backup is gone": (sent().save_in_vain(Phase.OK).work(20), "backup that is gone"),
    "a backup that failed is not there": (sent().save_in_vain(Phase.FAILED).work(20), ""),
}


@pytest.mark.parametrize(("history", "broken"), CASES.values(), ids=CASES)
def test_a_backup_is_one_state_of_the_queues_between_its_begin_and_its_end(
    history: Saved, broken: str
) -> None:
    assert ", ".join(_promises(history.in_order())) == broken


def _promises(events: list[Event]) -> list[str]:
    return [offence.promise for offence in judge_saved(events, Lives(events))]


class Place:
    """A queue in a file, and a client that sends to it, acks and makes backups."""

    def __init__(self, folder: Path, defect: str = "") -> None:
        self.target = SqliteTarget(folder / "store")
        self.target.start()
        self.stage: Any = SimpleNamespace(folder=folder, logs=[folder / "log"])
        url, log = self.target.url, str(folder / "log")
        told = Assignment(role="save", name="z1.1", seed=1, url=url, queue="q", log=log, dial="")
        self.client = Client(open_store(url, SystemClock()))
        self.queue = self.client.create_queue("q", shards=1, time_shards=1)
        self._saver = Saving(told, Dial(folder / "dial"), self.client, Flag())
        self._record = self._saver.record
        self._saved = with_defect(defect, open_store(url, SystemClock()))

    def send(self, *bodies: str) -> None:
        self._record.invoke("send", bodies)
        with self.queue.producer() as producer:
            producer.send_many(body.encode() for body in bodies)
        self._record.outcome("send", Phase.OK, bodies)

    def ack(self) -> None:
        """Receive the next message, and ack it."""
        with self.queue.consumer() as consumer:
            self._record.invoke("receive")
            batch = consumer.receive()
            number, body = self._record.number, batch[0].raw.decode()
            self._record.outcome("receive", Phase.OK, deliveries=[delivery(body)])
            self._record.settle("ack", [body], batch.ack, batch=number)

    def save(self, name: str) -> None:
        self._saver.save(cast("SavedStore", self._saved), name)

    def judge(self) -> tuple[list[str], list[str]]:
        """What is wrong with the rows of the backups, and with their messages."""
        problems = audit_saved(self.target, self.stage, "q")
        return problems, _promises(read_history(self.stage.logs))

    def close(self) -> None:
        self.client.close()
        self._saved.close()


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    with closing(Place(tmp_path, getattr(request, "param", ""))) as made:
        yield made


@pytest.mark.parametrize(
    ("place", "broken"),
    [("", []), ("SavesAnEarlierState", ["in a backup and acked", "not in a backup"])],
    indirect=["place"],
)
def test_backups_are_restored_and_compared_with_what_was_sent_and_acked(
    place: Place, broken: list[str]
) -> None:
    place.send("a", "b", "c")
    place.ack()
    place.save("z1-0")
    place.ack()
    place.send("d")
    place.save("z1-1")
    assert place.judge() == ([], broken)
    assert not list(place.stage.folder.glob("*.backup*"))


def test_a_part_of_a_file_that_has_the_name_of_a_backup_is_a_problem(place: Place) -> None:
    place.send("a", "b", "c")
    place.save("z1-0")
    (backup,) = place.stage.folder.glob("*.backup")
    backup.write_bytes(backup.read_bytes()[:20_000])
    (problem,), broken = place.judge()
    assert "z1-0.backup could not be restored" in problem
    assert broken == ["backup that is gone"]


class Copying(Actor):
    """A client that is in the middle of a backup for ever."""

    def __init__(self, assignment: Assignment, folder: Path) -> None:
        self.assignment = assignment
        command = f"sleep 0.2; touch {backup_of(folder, 'z1-0')}.part; exec sleep 60"
        self.process = subprocess.Popen(["sh", "-c", command], cwd=folder)


def test_the_client_that_makes_backups_is_killed_in_the_middle_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "Actor", Copying)
    monkeypatch.setattr(faults, "BACKUP_SECONDS", 60.0)
    told = Assignment(role="", name="", seed=0, url="", queue="q", log="", dial="")
    clients = stage.Stage(tmp_path, told, "seed")
    target: Any = SimpleNamespace(goes_by_client_clock=True, huge=0)
    nemesis = faults.Faults(target, clients, cast("Client", None), "q", lambda _: None)
    victim = clients.start("save", "z1", messages=1)
    try:
        assert nemesis.kill_saver(STEP) == ("z1.1, 1 not complete", None)
        assert not victim.runs
    finally:
        clients.kill("save")
