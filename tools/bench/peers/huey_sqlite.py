"""huey with SqliteHuey. A task is taken out of the file before it is executed: at most once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..peer import PeerMissing

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

    def open(self, folder: Path) -> None:
        self._huey = SqliteHuey("bench", filename=str(folder / "huey.db"), fsync=True, results=False)
        self._size = 0

        @self._huey.task()
        def work(body: bytes) -> None:
            self._size += len(body)

        self._work = work

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self.send_singles(bodies)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._work(body)

    def receive(self, count: int, batch: int) -> int:
        self._size = 0
        for _ in range(count):
            self._huey.execute(self._huey.dequeue())
        return self._size

    def close(self) -> None:
        self._huey.storage.close()
