"""Keuss, which runs on Node.js: a process of it is told what to do. In bulk it sends the first body again and again,
so that the others do not cross the pipe.

Its signals do not reach the processes that join, so these poll.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..peer import POLL_SECONDS, POLLED, PeerMissing

MODULES = Path(__file__).parents[3] / ".venv-bench" / "node_modules"
SCRIPT = Path(__file__).parents[1] / "keuss_queue.cjs"
AT_ONCE = 32
PATIENCE = 2_000  # milliseconds; what comes just as a pop gives up is gone; buckets are written every 500


class KeussQueue:
    name: str
    durability: str
    sends: str
    receives: str
    share: float
    backend: str
    wakes = POLLED
    threads = ""  # a process each would be no threads
    takes_one = True
    wins = "many requests are in flight at a time, each for one message"
    place = None

    def options(self) -> dict[str, Any]:
        """Return where the backend finds its server. Raises PeerMissing."""
        raise NotImplementedError

    def clear(self) -> None:
        """Drop what the queue has stored."""
        raise NotImplementedError

    def open(self, folder: Path) -> None:
        if shutil.which("node") is None or not (_modules() / "keuss").exists():
            raise PeerMissing("Node.js or its package keuss is not installed")
        self._start()

    def join(self, place: None) -> None:
        self._start(str(round(POLL_SECONDS * 1_000)))

    def _start(self, *poll: str) -> None:
        self._process = subprocess.Popen(
            ["node", str(SCRIPT), self.backend, json.dumps(self.options()), *poll],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"NODE_PATH": str(_modules()), "NODE_NO_WARNINGS": "1"},
        )
        self._answer()

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self._push(bodies, AT_ONCE)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        self._push(bodies, 1)

    def receive(self, count: int, batch: int) -> int:
        return int(self._ask(do="receive", count=count, at_once=min(batch, AT_ONCE))["size"])

    def receiving(self) -> Iterator[Sequence[bytes]]:
        while True:
            body = self._ask(do="next", milliseconds=PATIENCE)["body"]
            yield [base64.b64decode(body)] if body else []
            if body:
                self._ask(do="ok")

    def leave(self) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait(10)
        self._process.stdout.close()  # type: ignore[union-attr]

    def close(self) -> None:
        self.leave()
        self.clear()

    def _push(self, bodies: Sequence[bytes], at_once: int) -> None:
        body = base64.b64encode(bodies[0]).decode("ascii")
        self._ask(do="push", count=len(bodies), at_once=at_once, body=body)

    def _ask(self, **words: Any) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(words) + "\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())  # type: ignore[union-attr]
        return answer


def _modules() -> Path:
    return Path(os.environ.get("SHARDQ_BENCH_NODE_MODULES", MODULES))
