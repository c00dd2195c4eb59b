"""The options of a worker: the same ones for a worker, a pool and the command line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import shardq
from shardq import Message, Queue
from shardq.cli.commands.work import work
from shardq.pipelines import PipelinePool
from shardq.tasks import TaskPool
from shardq.worker import Worker, WorkerOptions, WorkerPool
from shardq.worker.options import WorkerKeywords
from shardq.worker.process import reporting


class PathAndText:
    """A codec of an application's own, which can be pickled."""

    def encode(self, value: tuple[Path, str]) -> bytes:
        return "|".join(map(str, value)).encode()

    def decode(self, body: bytes) -> tuple[Path, str]:
        path, _, text = body.decode().partition("|")
        return Path(path), text


def keep_text(message: Message) -> None:
    path, text = message.body
    path.write_text(text)


def test_the_keyword_arguments_are_the_fields_of_the_options() -> None:
    assert get_type_hints(WorkerKeywords) == get_type_hints(WorkerOptions)


def test_the_command_line_has_every_option_with_the_same_default() -> None:
    given = work.make_context("work", ["orders", "--handler", "shop:charge"]).params

    assert WorkerOptions(**{name: given[name] for name in WorkerOptions.__struct_fields__}) == WorkerOptions()


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"retry_delay": -1}, {"idle_exit": -1}, {"codec": "morse"}]
)
def test_a_pool_refuses_options_that_make_no_sense_before_it_starts_a_process(
    url: str, options: dict[str, Any]
) -> None:
    with pytest.raises(shardq.InvalidSetting):
        WorkerPool(url, "jobs", print, **options)


def test_a_semaphore_is_given_by_its_name(client: shardq.Client, queue: Queue) -> None:
    semaphore: Any = client.semaphore("smtp", permits=1)
    with pytest.raises(shardq.InvalidSetting, match="give the name of a semaphore"):
        Worker(queue, print, semaphore=semaphore)


@pytest.mark.parametrize("codec", ["text", shardq.TEXT])
def test_a_worker_takes_a_codec_or_its_name(queue: Queue, codec: Any) -> None:
    queue.producer().send(b"hello")
    bodies: list[str] = []

    Worker(queue, lambda message: bodies.append(message.body), codec=codec, idle_exit=0).run()

    assert bodies == ["hello"]


@pytest.mark.long
def test_a_pool_takes_a_codec_that_can_be_pickled(url: str, queue: Queue, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    queue.producer(codec=PathAndText()).send((kept, "hello"))

    report = WorkerPool(url, "jobs", keep_text, codec=PathAndText(), idle_exit=0).run()

    assert report.total.worked == 1, report
    assert kept.read_text() == "hello"


class Severed:
    """A channel whose every report fails, as one that cannot be pickled does."""

    def send(self, report: object) -> None:
        raise ValueError("cannot be sent")


def test_pools_describe_their_work_without_the_login_of_the_store() -> None:
    url, store = "mongodb://ada:secret@db/shop", "mongodb://...@db/shop"
    many: Any = {"processes": (1, 8), "threads": 4}
    assert [
        WorkerPool(url, ["mail", "news/*"], print).description,
        TaskPool(url, "shop.tasks", **many).description,
        TaskPool(url, "shop.tasks", queues=["mail", "news"]).description,
        PipelinePool(url, "shop.flow:pipeline", processes=2).description,
    ] == [
        f"mail, news/* at {store} with 1 process",
        f"tasks of shop.tasks at {store} with 1 to 8 processes of 4 threads",
        f"tasks of shop.tasks in mail, news at {store} with 1 process",
        f"pipeline shop.flow:pipeline at {store} with 2 processes",
    ]


def test_a_worker_that_can_report_no_more_ends_with_the_error(
    queue: Queue, begun_threads: Callable[..., list[threading.Thread]]
) -> None:
    worker = Worker(queue, print)  # waits for messages for ever

    with pytest.raises(ValueError, match="cannot be sent"), reporting(worker, Severed()):  # type: ignore[arg-type]
        worker.run()

    assert not begun_threads("shardq-reporter")
