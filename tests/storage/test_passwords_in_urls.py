"""No error, cause, command line or repr repeats a password of a URL, or a piece of it, however it is written there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardq
from shardq.cli.commands.bench import Load
from shardq.cli.main import main
from shardq.errors import InvalidSetting, ShardqError, StoreUnavailable
from shardq.spark.options import BrowseOptions
from shardq.spark.options import parse as spark_options
from shardq.worker.options import WorkerOptions
from shardq.worker.process import WorkerPlan

MARKS = "QZJVKW"  # letters that no text of shardq has two of within four characters
ODD = "/@:?#%[];&=,+ $'\"\\|\t\u2100\u00e9"
SCHEMES = ["mongodb", "mongodb+srv", "cassandra", "sqlite", "memory", "redis", "postgresql"]
PLACES = [
    "{}://user:{}@127.0.0.1:1/orders",
    "{}://user:{}@127.0.0.1:1",
    "{}://:{}@127.0.0.1:1/orders",
    "{}://user:{}@host:port/or$ders?nothing=1",
    "{}://user:{}",
    "{}:/user:{}@host/orders",
    "{}:user:{}@host",
    "{}://host/orders?password={}&nothing=1",
    "{}://host/orders?tlsCertificateKeyFilePassword={}&nothing=1",
    "{}://user:user@host/orders?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:{}",
    "sqlite:///queue.db?signals={}://user:{}@127.0.0.1:1/0",
    "sqlite:///queue.db?synchronous=full&signals={}://user:{}@127.0.0.1:1/0?nothing=1",
]
passwords = st.lists(st.sampled_from([*MARKS, *ODD, "%FF", "%00"]), min_size=5, max_size=16).map("".join)


def pieces(password: str) -> Iterator[str]:
    for written in (password, quote(password, ""), quote_plus(password)):
        for start in range(len(written) - 3):
            piece = written[start : start + 4]
            if sum(each in MARKS for each in piece) > 1:
                yield piece


def texts(error: BaseException | None) -> Iterator[str]:
    """What an error and all behind it say, whether a traceback shows it or not."""
    if error is not None:
        yield f"{error} {error!r} {getattr(error, '__notes__', '')}"
        yield from texts(error.__cause__)
        if error.__context__ is not error.__cause__:
            yield from texts(error.__context__)


def assert_hidden(password: str, *told: str) -> None:
    leaked = [(piece, text) for text in told for piece in pieces(password) if piece in text]
    assert not leaked


@pytest.fixture(autouse=True, scope="module")
def _drivers() -> None:
    for driver in ("pymongo", "cassandra", "psycopg", "redis"):
        pytest.importorskip(driver)


def refusal(url: str) -> ShardqError | None:
    try:
        shardq.connect(url).close()
    except ShardqError as error:
        return error
    return None


@settings(max_examples=400)
@given(st.sampled_from(SCHEMES), st.sampled_from(PLACES), passwords, st.booleans())
@example("mongodb", PLACES[0], "QZ/JVKW", False)
@example("mongodb", PLACES[8], "QZ&JVKW=ZQ", False)
@example("cassandra", PLACES[0], "QZ[JVKW]", False)
@example("redis", PLACES[10], "QZJVKW/ZQ", False)
@example("sqlite", PLACES[0], "QZJVKW", False)
@example("memory", PLACES[0], "QZJVKW", False)
@example("postgresql", PLACES[0], "QZ\u2100JVKW", False)
@example("postgresql", PLACES[0], "QZ%FFJVKW", False)
@example("mongodb", PLACES[0], "QZ%FFJVKW", False)
@example("cassandra", PLACES[0], "QZ%FFJVKW", False)
def test_a_url_that_is_refused_tells_no_piece_of_its_password(
    scheme: str, place: str, password: str, quoted: bool
) -> None:
    url = place.format(scheme, quote(password, "") if quoted else password)
    error = refusal(url)
    if error is None:
        return
    assert isinstance(error, InvalidSetting)
    shell = CliRunner().invoke(main, ["--url", url, "list"])
    assert shell.exit_code == 2
    assert_hidden(password, *texts(error), shell.output)


@pytest.mark.parametrize(
    "arguments", [["{}"], ["stats", "{}"], ["list", "a", "{}"], ["send", "orders", "-f", "{}"]]
)
@given(st.sampled_from(PLACES[:3]), passwords)
@settings(max_examples=40)
def test_a_url_in_the_place_of_something_else_is_masked_by_the_command_line(
    arguments: list[str], place: str, password: str
) -> None:
    url = place.format("mongodb", password)
    given = [each.format(url) for each in arguments]
    shell = CliRunner().invoke(
        main, ["--url", "sqlite:///nowhere/queue.db", *given], env={"SHARDQ_DEBUG": "1"}
    )
    assert shell.exit_code
    assert "Traceback" in shell.output
    assert_hidden(password, shell.output)


@given(passwords)
@settings(max_examples=20)
def test_a_command_that_asks_before_it_changes_a_store_names_it_without_its_password(password: str) -> None:
    url = f"sqlite:////nowhere/queue.db?signals=redis://user:{quote(password, '')}@127.0.0.1:1"
    shell = CliRunner().invoke(main, ["--url", url, "restore", "saved.db"], input="n\n")
    assert "Replace all queues of sqlite:////nowhere/queue.db?" in shell.output
    assert_hidden(password, shell.output)


@pytest.mark.parametrize("written", [lambda password: quote(password, ""), str], ids=["quoted", "as it is"])
@pytest.mark.parametrize(
    "password", ["QZJVKW", "QZ/JVKW", "QZ@JVKW:W", "QZ%JVKW&W=Z", "QZ?JVKW#Z[W]", "QZ JVKW\u00e9"]
)
@pytest.mark.parametrize(
    "url",
    [
        "mongodb://user:{}@127.0.0.1:1/orders?serverSelectionTimeoutMS=20",
        "mongodb://127.0.0.1:1/orders?tls=true&tlsCertificateKeyFilePassword={}&serverSelectionTimeoutMS=20",
        "mongodb://user:user@127.0.0.1:1/orders?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:{}",
        "mongodb+srv://user:{}@no-such-host.example.invalid/orders?connectTimeoutMS=300",
        "mongodb://user:{}@127.0.0.1:1,127.0.0.1:2/orders?replicaSet=rs&serverSelectionTimeoutMS=20",
        "cassandra://user:{}@127.0.0.1:1/orders?timeout=0.2",
        "postgresql://user:{}@127.0.0.1:1/orders",
        "postgresql://user:{}@127.0.0.1:1,127.0.0.1:2/orders",
        "postgresql://user@127.0.0.1:1/orders?sslpassword={}",
        "sqlite:////proc/nothing/queue.db?signals=redis://user:{}@127.0.0.1:1",
    ],
)
def test_a_store_that_is_unreachable_tells_no_piece_of_its_password(
    url: str, password: str, written: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    given = url.format(written(password))
    if (refused := refusal(given)) is not None:
        assert_hidden(password, *texts(refused), caplog.text)
        return
    with shardq.connect(given, retry_seconds=0.0) as client:
        findings = client.diagnose()
        with pytest.raises((StoreUnavailable, InvalidSetting)) as raised:
            client.create_queue("orders")
    assert not all(finding.ok for finding in findings)
    assert_hidden(password, *texts(raised.value), repr(findings), repr(vars(client)), caplog.text)


@pytest.mark.parametrize(
    "url", ["mongodb://user:QZ/JV@KW@host/orders", "mongodb://host/orders?password=QZJV KW"]
)
def test_what_is_sent_to_other_processes_masks_the_password_in_its_text(url: str) -> None:
    given: list[Any] = [
        WorkerPlan(url=url, handlers={}, options=WorkerOptions()),
        Load(url=url, queue="orders", messages=1, size=8, producers=1, consumers=1, batch=1),
        BrowseOptions(url=url),
    ]
    for each in given:
        assert "url='mongodb://" in repr(each)
        assert_hidden("QZ/JV@KW", repr(each))
        assert_hidden("QZJV KW", repr(each))


@pytest.mark.parametrize("option", ["store", "mode", "endpoint", "queue"])
def test_an_option_of_spark_that_is_a_url_by_mistake_is_masked(option: str) -> None:
    url = "mongodb://user:QZ/JV@KW@host/orders"
    with pytest.raises(ShardqError) as raised:
        spark_options(BrowseOptions, {"url": "sqlite:///q.db", "queue": "q", option: url})
    assert_hidden("QZ/JV@KW", *texts(raised.value))
