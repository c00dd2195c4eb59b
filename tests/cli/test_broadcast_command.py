"""``shardq broadcast``."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from subprocess import Popen

import shardq
from shardq.broadcast import Broadcast
from tests.cli.conftest import Shell


def publish_to_one(url: str, *bodies: bytes) -> None:
    """Publish as soon as somebody listens."""
    with shardq.connect(url) as client:
        news = Broadcast(client, "news")
        for body in bodies:
            while not news.publish(body, headers={"shop": 7}):
                threading.Event().wait(0.02)


def test_who_listens_prints_what_is_published(shell: Shell) -> None:
    for options, printed in (((), "tea\nmilk\n"), (("--json",), '"body":"tea"')):
        sender = threading.Thread(target=publish_to_one, args=(shell.url, b"tea", b"milk"))
        sender.start()
        listened = shell.ok("broadcast", "subscribe", "news", "--limit", "2", *options)
        sender.join()
        assert printed in listened.stdout
        assert listened.stderr == "subscribed to news\n"
    assert shell.ok("list").stdout == "news.subscribers\n"


def test_who_listens_ends_when_nothing_comes(shell: Shell) -> None:
    assert shell.ok("broadcast", "subscribe", "news", "--wait", "0").stdout == ""


def test_a_signal_ends_listening_and_leaves_nothing(start: Callable[..., Popen[str]], shell: Shell) -> None:
    process = start("broadcast", "subscribe", "news")
    assert process.stderr is not None
    assert process.stdout is not None
    assert process.stderr.readline() == "subscribed to news\n"
    publish_to_one(shell.url, b"tea")
    assert process.stdout.readline() == "tea\n"
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "")
    assert shell.ok("list").stdout == "news.subscribers\n"


def test_publishing_tells_how_many_listen(shell: Shell) -> None:
    with shardq.connect(shell.url) as client, Broadcast(client, "news").subscribe() as subscription:
        told = shell.ok("broadcast", "publish", "news", "tea", "--ttl", "1m", "--header", "a=b").stderr
        assert told == "1 message sent to 1 subscriber of news\n"
        assert shell.json("broadcast", "publish", "news", "--codec", "json", stdin='{"x": 1}\n\n2\n') == {
            "broadcast": "news", "messages": 2, "subscribers": 1,
        }  # fmt: skip
        messages = [message for batch in subscription.batches(10, wait=0) for message in batch]
        assert [message.body for message in messages] == [b"tea", b'{"x":1}', b"2"]
        assert messages[0].headers == {"a": "b"}
        assert messages[0].expires_at is not None
    assert "0 subscribers" in shell.ok("broadcast", "publish", "news", "x").stderr


def test_what_is_wrong_is_one_line(shell: Shell) -> None:
    for arguments in (
        ["publish", "a:b", "x"], ["publish", "news", "x", "--header", "y"], ["subscribe", "news", "--keep", "1"],
        ["subscribe", "news", "--limit", "0"], ["publish", "news", "--codec", "json", "x"],
    ):  # fmt: skip
        result = shell("broadcast", *arguments)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), arguments
