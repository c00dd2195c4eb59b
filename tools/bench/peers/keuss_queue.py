"""Keuss, which runs on Node.js: a process of it makes bodies of the same size by itself, so that none cross a pipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..mongodb_server import clear, url
from ..peer import PeerMissing

MODULES = Path(__file__).parents[3] / ".venv-bench" / "node_modules"
SCRIPT = Path(__file__).parents[1] / "keuss_queue.cjs"
AT_ONCE = 32


class KeussQueue:
    name: str
    durability: str
    sends: str
    receives: str
    share: float
    backend: str

    def open(self, folder: Path) -> None:
        modules = Path(os.environ.get("SHARDQ_BENCH_NODE_MODULES", MODULES))
        if shutil.which("node") is None or not (modules / "keuss").exists():
            raise PeerMissing("Node.js or its package keuss is not installed")
        self._process = subprocess.Popen(
            ["node", str(SCRIPT), self.backend, self._url()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"NODE_PATH": str(modules), "NODE_NO_WARNINGS": "1"},
        )
        self._answer()

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self._ask("push", len(bodies), AT_ONCE, len(bodies[0]))

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        self._ask("push", len(bodies), 1, len(bodies[0]))

    def receive(self, count: int, batch: int) -> int:
        return int(self._ask("receive", count, AT_ONCE)["size"])

    def close(self) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait(10)
        self._process.stdout.close()  # type: ignore[union-attr]
        for database in (
            f"bench_{self.backend}",
            f"bench_{self.backend}_stats",
            f"bench_{self.backend}_signal",
        ):
            clear(database)

    def _url(self) -> str:
        place, _, options = url().partition("?")
        base = place.rpartition("/")[0]
        return f"{base}/bench_{self.backend}?{options}&w=majority&journal=true"

    def _ask(self, what: str, count: int, at_once: int, size: int = 0) -> dict[str, int]:
        words = {"do": what, "count": count, "size": size, "at_once": at_once}
        self._process.stdin.write(json.dumps(words) + "\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        return self._answer()

    def _answer(self) -> dict[str, int]:
        return json.loads(self._process.stdout.readline())  # type: ignore[union-attr]
