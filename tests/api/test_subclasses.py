"""Texts and numbers of subclasses, such as members of enums, are what they are equal to."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest

import shardq
from tests.any_store import any_url, connect_any, name

__all__ = ["any_url", "connect_any", "name"]


class Text(str):
    """Is written otherwise than what it is equal to, as a member of a class of `str` and `Enum` is."""

    __slots__ = ()

    def __str__(self) -> str:
        return "otherwise"

    def __format__(self, form: str) -> str:
        return "otherwise"


def member(text: str) -> str:
    """A member of an enum that was made before there was a `StrEnum`."""

    class Kind(str, enum.Enum):  # noqa: UP042 - whose members are written otherwise
        MEMBER = text

    return Kind.MEMBER


class Content(bytes):
    pass


class Whole(int):
    pass


class Real(float):
    pass


KINDS = pytest.mark.parametrize("kind", [Text, member])


@KINDS
def test_a_queue_has_the_name_that_others_know(
    connect_any: Callable[[], shardq.Client], name: str, kind: Callable[[str], str]
) -> None:
    queue = connect_any().create_queue(kind(name), dead_letter_queue=kind(f"{name}.letters"))
    other = connect_any().queue(name)
    assert connect_any().queues(name) == (name, f"{name}.letters")
    sent = queue.producer().send(Content(b"one"))
    assert other.get(sent) is not None
    keys: list[dict[str, Any]] = [{"dedupe_key": "a"}, {"unique_key": "a"}]
    for key in keys:
        assert queue.producer().send(b"two", **key) == other.producer().send(b"three", **key)
    batch = other.consumer().receive(10)
    assert sorted(batch.bodies) == [b"one", b"two", b"two"]
    queue.ack([message.receipt for message in batch])
    assert other.counts().in_flight == 0
    connect_any().delete_queue(kind(name))
    assert not connect_any().exists(name)


@KINDS
def test_options_of_a_message_are_those_that_others_know(
    connect_any: Callable[[], shardq.Client], name: str, kind: Callable[[str], str]
) -> None:
    queue = connect_any().create_queue(name)
    producer, other = queue.producer(), connect_any().queue(name)
    for key in ("dedupe_key", "unique_key"):
        mine: dict[str, Any] = {key: kind("a")}
        same: dict[str, Any] = {key: "a"}
        sent = producer.send(key.encode(), priority=Whole(1), **mine)
        assert other.producer().send(b"again", **same) == sent
    producer.send(b"first", group=kind("g"), headers={kind("h"): 1}, delay=Real(0), ttl=Real(600))
    other.producer().send(b"second", group="g")
    first, second = [each for each in other.consumer().receive(10) if each.group]
    assert (first.body, first.group, first.headers) == (b"first", "g", {"h": 1})
    assert (second.body, second.group) == (b"second", "g")


def test_settings_of_subclasses_are_read_by_others(
    connect_any: Callable[[], shardq.Client], name: str
) -> None:
    given = {
        "shards": Whole(2),
        "time_shards": Whole(1),
        "visibility_timeout": Real(5),
        "rate_limit": Text("9/s"),
    }
    queue = connect_any().create_queue(name, **given)  # type: ignore[arg-type]
    queue.alter(max_deliveries=Whole(7), overflow=Text("drop_oldest"))  # type: ignore[arg-type]
    settings = connect_any().queue(name).settings
    assert (settings.shards, settings.visibility_timeout, settings.rate_limit) == (2, 5.0, "9/s")
    assert (settings.max_deliveries, settings.overflow) == (7, "drop_oldest")


@KINDS
def test_a_topic_has_the_names_that_others_know(
    connect_any: Callable[[], shardq.Client], name: str, kind: Callable[[str], str]
) -> None:
    topic = connect_any().create_topic(kind(name))
    mail = topic.subscribe(kind("mail"), filter=kind("a.*"))
    topic.publish(b"one", subject=kind("a.b"), headers={kind("h"): 1})
    other = connect_any().topic(name)
    other.relay()
    (message,) = other.subscription("mail").consumer().receive(10, wait=5)
    assert (message.body, message.headers) == (b"one", {"shardq-subject": "a.b", "h": 1})
    assert topic.subscription(kind("mail")).queue.name == mail.queue.name
    connect_any().delete_topic(kind(name))
    assert name not in connect_any().topics()


@KINDS
def test_a_consumer_has_the_name_that_others_know(
    connect_any: Callable[[], shardq.Client], name: str, kind: Callable[[str], str]
) -> None:
    queue = connect_any().create_queue(name)
    queue.producer().send(b"one")
    queue.consumer(name=kind("mine")).receive(1)
    other = connect_any().queue(name)
    assert [each.name for each in other.consumers()] == ["mine"]
    assert other.evict(kind("mine"), force=True) == 1
