"""A hundred megabytes go through a client that holds a few of them at a time."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import hashlib, io, resource, sys
import shardq


class Film(io.RawIOBase):
    left = 100 * 1_000_000

    def read(self, size=-1):
        size = min(size, self.left)
        self.left -= size
        return bytes(size)


def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


with shardq.connect(sys.argv[1]) as client:
    queue = client.create_queue("films")
    queue.producer().send(b"at rest")
    queue.consumer().pop()
    before = most()
    queue.producer().send_stream(Film())
    (message,) = queue.consumer().receive()
    with message.open() as film:
        assert sum(map(len, iter(lambda: film.read(1 << 16), b""))) == 100 * 1_000_000
    message.ack()
    print(most() - before)
"""


@pytest.mark.long
def test_a_hundred_megabytes_take_less_than_64_of_memory(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, url], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64
