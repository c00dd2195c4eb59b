"""huey with SqliteHuey. A task is taken out of the file before it is executed: at most once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..peer import POLLED, SHARED, PeerMissing, look_again

try:
    from huey import SqliteHuey
except ImportError as error:
    raise PeerMissing("huey is not installed") from error


class HueySqlite:
    name = "huey, SqliteHuey"
    durability = "fsync"
    sends = "a commit for each task, fsync (WAL, fsync=True)"
    receives = "at most once: taken out, then executed; a commit for each task"
    share = 0.03
    wakes = POLLED
    threads = SHARED
    takes_one = True
    wins = "a task is taken out without a lease: what a crash interrupts is lost"

    def open(self, folder: Path) -> None:
        self.place = folder / "huey.db"
        self.join(self.place)

    def join(self, place: Path) -> None:
        self._huey = SqliteHuey("bench", filename=str(place), fsync=True, results=False)

        @self._huey.task()  # type: ignore[untyped-decorator]
        def work(body: bytes) -> bytes:
            return body

        self._work = work

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self.send_singles(bodies)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._work(body)

    def receive(self, count: int, batch: int) -> int:
        return sum(len(self._huey.execute(self._huey.dequeue())) for _ in range(count))

    def pop(self, count: int) -> None:
        """The storage alone, without making a task of what it gives."""
        for _ in range(count):
            if self._huey.storage.dequeue() is None:
                raise RuntimeError("a task did not come")

    def receiving(self) -> Iterator[Sequence[bytes]]:
        for task in look_again(self._huey.dequeue):
            yield [self._huey.execute(task)] if task else []

    def leave(self) -> None:
        self._huey.storage.close()

    close = leave
