"""A Django project within the tests, whose database and queues are files of each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django_app.settings")
django.setup()

from shardq.django.backend import ShardqBackend  # noqa: E402
from shardq.django.calls import task_backends  # noqa: E402 - of a project that is set up
from tests.django_app.shop import queues  # noqa: E402


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The database of the project, in the file of its queues."""
    file = tmp_path / "shop.sqlite3"
    monkeypatch.setenv("SHOP_DATABASE", str(file))
    monkeypatch.setenv("SHOP_QUEUES", f"sqlite:///{file}")
    monkeypatch.setattr(settings, "SHARDQ_URL", f"sqlite:///{file}")
    connections["default"].close()
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", str(file))
    _forget_backends()
    queues.client().create_queue("orders")
    call_command("migrate", run_syncdb=True, verbosity=0)
    yield file
    for alias in settings.TASKS:
        task_backends[alias].close()
    _forget_backends()
    queues.client().close()
    queues.client.cache_clear()
    connections["default"].close()


@pytest.fixture
def backend(files: Path) -> ShardqBackend:
    return backend_of("default")


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the options of the backend "patient", which a test may change before it uses that."""
    options = dict(settings.TASKS["patient"]["OPTIONS"])
    monkeypatch.setitem(settings.TASKS["patient"], "OPTIONS", options)
    return options


def backend_of(alias: str) -> ShardqBackend:
    found = task_backends[alias]
    assert isinstance(found, ShardqBackend)
    return found


def _forget_backends() -> None:
    for alias in settings.TASKS:
        with suppress(AttributeError):  # it was not used
            del task_backends[alias]
