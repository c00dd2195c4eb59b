"""Actions of a service whose processes are killed: each that was confirmed was done, and none is done twice."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

import shardq
from tests.service.serving import serving

KILLS = 2
LETTERS = 200
BETWEEN = 40  # actions between two kills
AT_ONCE = 10  # letters of a redrive


class Caller:
    """A client of the service with one connection, which it opens again when that is broken."""

    def __init__(self, address: str) -> None:
        self._host = urlsplit(address).netloc
        self._connection = http.client.HTTPConnection(self._host, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def act(self, path: str, body: object) -> dict[str, Any] | None:
        """Return the answer of an action; None when it is unknown what became of it."""
        try:
            self._connection.request(
                "POST", f"/api/v1/{path}", json.dumps(body), {"content-type": "application/json"}
            )
            response = self._connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException):
            self._connection.close()
            time.sleep(0.05)
            return None
        assert response.status in (200, 503), answer
        return answer if response.status == 200 else None


class Load:
    """Actions on a queue and its dead letters, until they are ended."""

    def __init__(self, queue: str, letters: list[str]) -> None:
        self.queue, self.letters = queue, letters
        self.numbers, self.done = count(), 0
        self.ended = threading.Event()
        self.keyed: set[str] = set()
        self.confirmed: set[str] = set()
        self.unknown: set[str] = set()

    def run(self, calls: Callable[[Caller], None], address: str) -> None:
        """Make some calls with a connection of their own."""
        with closing(Caller(address)) as caller:
            calls(caller)

    def wait(self, actions: int) -> None:
        """Wait until so many more are done."""
        wanted = self.done + actions
        _wait_until(lambda: self.done >= wanted)

    def send_again_and_again(self, caller: Caller) -> None:
        """Repeat each send until it is confirmed, with a key that stores it once."""
        while not self.ended.is_set():
            body = f"keyed {next(self.numbers)}"
            while caller.act(f"messages/{self.queue}", {"body": body, "dedupe_key": body}) is None:
                pass
            self.keyed.add(body)
            self.done += 1

    def send_once(self, caller: Caller) -> None:
        """Send without a key, and repeat nothing."""
        while not self.ended.is_set():
            body = f"plain {next(self.numbers)}"
            sent = caller.act(f"messages/{self.queue}", {"body": body})
            (self.unknown if sent is None else self.confirmed).add(body)
            self.done += 1

    def redrive(self, caller: Caller) -> None:
        """Send the dead letters back, some at a time, and repeat what is not confirmed."""
        for start in range(0, len(self.letters), AT_ONCE):
            if self.ended.is_set():
                return
            some = self.letters[start : start + AT_ONCE]
            while caller.act(f"redrive/{self.queue}.dead", {"ids": some}) is None:
                pass
            self.done += 1

    def calls(self) -> list[Callable[[Caller], None]]:
        return [self.send_again_and_again, self.send_once, self.send_once, self.redrive]


def _wait_until(come: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not come():
        assert time.monotonic() < until
        time.sleep(0.02)


def _servers(process: int) -> list[psutil.Process]:
    """Return the processes that answer, without what multiprocessing needs beside."""
    found = []
    for each in psutil.Process(process).children():
        with suppress(psutil.Error):  # it was killed
            found += [each] * any("spawn_main" in word for word in each.cmdline())
    return found


def _bodies(*queues: shardq.Queue) -> Counter[str]:
    return Counter(
        message.body.decode() for queue in queues for message in queue.select(shardq.MessageFilter())
    )


@pytest.fixture
def queue(replica_set_url: str) -> Iterator[shardq.Queue]:
    with shardq.connect(replica_set_url) as client:
        queue = client.create_queue(f"killed-{token_hex(4)}", shards=4)
        yield queue
        for name in (queue.name, f"{queue.name}.dead"):
            client.delete_queue(name)


@pytest.mark.server
def test_no_action_is_lost_or_done_twice_when_processes_are_killed(
    replica_set_url: str, queue: shardq.Queue, tmp_path: Path
) -> None:
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send_many([f"letter {number}".encode() for number in range(LETTERS)])
        left = LETTERS
        while left:
            batch = consumer.receive(left, wait=5)
            left -= len(batch)
            batch.dead_letter("bank")
    with shardq.connect(replica_set_url) as client:
        load = Load(queue.name, [each.id for each in client.queue(f"{queue.name}.dead").peek(LETTERS)])
    log = tmp_path / "audit.log"
    options = ("serve", "--processes", "2", "--audit-log", str(log))
    with serving(replica_set_url, tmp_path, *options) as (process, address):
        with ThreadPoolExecutor() as threads:
            calls = [threads.submit(load.run, call, address) for call in load.calls()]
            try:
                for _ in range(KILLS):
                    load.wait(BETWEEN)
                    os.kill(_servers(process.pid)[0].pid, signal.SIGKILL)
                    _wait_until(lambda: len(_servers(process.pid)) == 2)
                load.wait(BETWEEN)
            finally:
                load.ended.set()
            for call in calls:
                call.result(60)
        process.terminate()
        assert process.wait(30) == 0
    with shardq.connect(replica_set_url) as client:
        found = _bodies(queue, client.queue(f"{queue.name}.dead"))
    letters = {f"letter {number}" for number in range(LETTERS)}
    assert set(found.values()) == {1}
    assert (
        letters | load.keyed | load.confirmed
        <= set(found)
        <= letters | load.keyed | load.confirmed | load.unknown
    )
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    sent = sum(line["action"] == "send" and line["outcome"] == "done" for line in lines)
    assert sent >= len(load.keyed) + len(load.confirmed)
