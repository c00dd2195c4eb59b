"""What a service needs is checked before it starts."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.errors import InvalidSetting
from shardq.service import ServePlan
from tests.certificates import write_certificates


def _check(**given: Any) -> None:
    ServePlan(url="sqlite:///queue.db", **given).check()


@pytest.fixture
def folder(tmp_path):
    write_certificates(tmp_path)
    (tmp_path / "text").write_text("no certificate")
    return tmp_path


def test_a_certificate_with_its_key_is_taken(folder) -> None:
    _check(certificate=f"{folder}/server.pem", key=f"{folder}/server.pem")


@pytest.mark.parametrize(
    ("certificate", "key"),
    [
        ("server.pem", None),
        (None, "server.pem"),
        ("server.pem", "missing"),
        ("missing", "server.pem"),
        ("server.pem", "client.pem"),
        ("server.pem", "text"),
        ("text", "server.pem"),
        ("server.pem", "."),
    ],
)
def test_certificates_are_checked_before_the_start(folder, certificate: str | None, key: str | None) -> None:
    given = {
        name: None if file is None else str(folder / file)
        for name, file in (("certificate", certificate), ("key", key))
    }
    with pytest.raises(InvalidSetting, match=r"certificate.*private_key"):
        _check(**given)


@pytest.mark.parametrize("file", ["missing/audit.log", "."])
def test_an_audit_log_that_cannot_be_written_ends_the_start(tmp_path, file: str) -> None:
    with pytest.raises(InvalidSetting, match=r"audit_log.*cannot be written"):
        _check(audit_log=str(tmp_path / file))


def test_the_check_of_an_audit_log_keeps_its_lines(tmp_path) -> None:
    file = tmp_path / "audit.log"
    file.write_text("line\n")
    _check(audit_log=str(file))
    assert file.read_text() == "line\n"
