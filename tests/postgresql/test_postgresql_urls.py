"""What a PostgreSQL URL says, and what is told of one that cannot be used."""

from __future__ import annotations

from typing import cast

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

from psycopg.conninfo import conninfo_to_dict  # noqa: E402

import shardq  # noqa: E402
from shardq.storage.postgresql.session import Session  # noqa: E402
from shardq.storage.postgresql.signals import Channel  # noqa: E402
from shardq.storage.postgresql.url import parse  # noqa: E402

SECRET = "tops3cr3t"


def test_options_of_the_store_are_not_given_to_the_driver() -> None:
    url = f"postgresql://u:{SECRET}@h1:1,h2:2/db?schema=jobs&pool_size=7&timeout=3&prepare=false&sslmode=require"
    address, pool_size = parse(url)
    given = conninfo_to_dict(address.conninfo)
    assert (address.schema, pool_size, address.patience, address.prepares) == ("jobs", 7, 3.0, False)
    assert (given["host"], given["port"], given["dbname"], given["sslmode"]) == (
        "h1,h2",
        "1,2",
        "db",
        "require",
    )
    assert given["password"] == SECRET
    assert given["target_session_attrs"] == "read-write"


def test_one_host_is_used_only_while_it_takes_writes() -> None:
    address, _ = parse("postgresql://h/db")
    assert conninfo_to_dict(address.conninfo)["target_session_attrs"] == "read-write"
    address, _ = parse("postgresql://h/db?target_session_attrs=any")
    assert conninfo_to_dict(address.conninfo)["target_session_attrs"] == "any"


def test_an_option_of_the_url_goes_before_what_the_store_sets() -> None:
    address, _ = parse("postgresql://h/db?connect_timeout=77&application_name=mine")
    given = conninfo_to_dict(address.conninfo)
    assert (given["connect_timeout"], given["application_name"]) == (77, "mine") or (
        given["connect_timeout"],
        given["application_name"],
    ) == ("77", "mine")


def test_the_text_of_an_address_has_no_login() -> None:
    address, _ = parse(f"postgresql://user:{SECRET}@h/db")
    assert SECRET not in f"{address} {address!r}"


def test_the_name_of_the_channel_is_the_subject_of_a_sentence_in_the_log() -> None:
    address, _ = parse("postgresql://h/db")
    assert Channel(cast(Session, None), address).name.startswith(
        "the notification channel of PostgreSQL at h"
    )


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@h/",
        f"postgresql://u:{SECRET}@h/db?no_option=1",
        f"postgresql://u:{SECRET}@h/db?schema=",
        f"postgresql://u:{SECRET}@h/db?schema=pg_jobs",
        f"postgresql://u:{SECRET}@h/db?pool_size=1",
        f"postgresql://u:{SECRET}@h/db?timeout=x",
        f"postgresql://u:{SECRET}@h/db?prepare=maybe",
        f"postgresql://u:{SECRET}@h:{SECRET}/db",
        f"postgresql://u:{SECRET}/x@h/db",
        f"postgresql://u:a&{SECRET}=@h/db?sslmode",
        f"postgresql://h/db?password={SECRET}&no_option=1",
        f"postgresql://h/db?password=a&{SECRET}=1",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(shardq.InvalidSetting) as refused:
        shardq.connect(url)
    error: BaseException | None = refused.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__
