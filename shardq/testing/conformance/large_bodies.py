"""Contract: a large body is read whole for as long as a message has it, and its parts go with the last one."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from shardq.client.queue import Queue
from shardq.core.large import bodies, collecting
from shardq.core.large.layout import BODIES, body_of, is_owner
from shardq.core.message import Message
from shardq.errors import ShardqError
from shardq.testing.conformance.applications import ApplicationContract, Applications

__all__ = ["LargeBodyContract"]

PART = 1_000
CONTENT = bytes(range(256)) * 10 + b"end"
PARTS = 3
LONG = 600.0  # seconds of a lease that does not run out


class LargeBodyContract(ApplicationContract):
    """Bodies in parts, beside their messages."""

    @pytest.fixture
    def large(self, apps: Applications, monkeypatch: pytest.MonkeyPatch) -> Queue:
        """Make a queue, in which bodies are stored in small parts."""
        monkeypatch.setattr(bodies, "PART_BYTES", PART)
        return apps.client.create_queue(
            apps.name, shards=1, time_shards=1, visibility_timeout=apps.seconds(LONG)
        )

    @pytest.fixture
    def later(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
        """Let everything that is stored count as written long ago."""
        return lambda: monkeypatch.setattr(collecting, "GRACE", -60_000_000)

    def test_a_large_body_is_read_whole_by_another_client(self, apps: Applications, large: Queue) -> None:
        large.producer().send_stream(io.BytesIO(CONTENT))
        message = self._only(apps)
        with message.open() as body:
            assert body.read() == CONTENT
            assert body.seek(PART - 3) == PART - 3
            assert body.read(10) == CONTENT[PART - 3 :][:10]

    def test_the_parts_of_a_body_go_with_its_message(self, apps: Applications, large: Queue) -> None:
        large.producer().send_stream(io.BytesIO(CONTENT))
        message = self._only(apps)
        assert message.large is not None
        assert self._parts(apps, message.large.id) == PARTS
        message.ack()
        assert self._parts(apps, message.large.id) == 0

    @pytest.mark.parametrize("by", ["pop", "remove", "purge"])
    def test_the_parts_of_a_body_whose_message_is_gone_are_swept(
        self, apps: Applications, large: Queue, later: Callable[[], None], by: str
    ) -> None:
        identity = large.producer().send_stream(io.BytesIO(CONTENT))
        (stored,) = large.peek()
        assert stored.large is not None
        other = apps.other.queue(apps.name)
        leave: dict[str, Callable[[], object]] = {
            "pop": other.consumer().pop,
            "remove": lambda: other.remove(identity),
            "purge": other.purge,
        }
        assert leave[by]()
        later()
        large.sweep()
        assert self._parts(apps, stored.large.id) == 0

    def test_the_parts_of_a_body_stay_while_a_message_has_them(
        self, apps: Applications, large: Queue, later: Callable[[], None]
    ) -> None:
        large.producer().send_stream(io.BytesIO(CONTENT))
        message = self._only(apps)
        assert message.large is not None
        large.producer().send(message.large)
        message.ack()
        later()
        large.sweep()
        assert self._parts(apps, message.large.id) == PARTS
        again = self._only(apps)
        with again.open() as body:
            assert body.read() == CONTENT
        again.ack()
        large.sweep()
        assert self._parts(apps, message.large.id) == 0

    def test_what_a_sender_that_died_has_stored_of_a_body_is_swept(
        self, apps: Applications, large: Queue, later: Callable[[], None]
    ) -> None:
        before = self._stored(apps)

        class Interrupted(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                if self.tell() >= 2 * PART:
                    apps.kill(apps.client)
                return super().read(size)

        with pytest.raises(ShardqError):
            large.producer().send_stream(Interrupted(CONTENT))
        left = self._stored(apps) - before
        assert sum(not is_owner(each) for each in left) == 2
        assert apps.other.queue(apps.name).counts().ready == 0
        later()
        apps.other.queue(apps.name).sweep()
        assert not left & self._stored(apps)

    def _only(self, apps: Applications) -> Message:
        (message,) = apps.other.queue(apps.name).consumer().receive(1)
        return message

    def _parts(self, apps: Applications, body: bytes) -> int:
        """Count the parts of a body that are stored."""
        return sum(body_of(each) == body and not is_owner(each) for each in self._stored(apps))

    def _stored(self, apps: Applications) -> set[bytes]:
        """Return the ids of all parts and owners' entries that are stored, whosever they are."""
        bodies = apps.harness.raw_queue(BODIES).bodies
        return {each for ids in bodies.values() for each in ids}
