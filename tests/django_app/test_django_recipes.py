"""The recipes for Django run, and are those of its page."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import transaction

from shardq.django.backend import ShardqBackend
from tests.django_app.shop.models import Order
from tests.django_app.shop.placing import place, place_in_one_step
from tests.django_app.shop.queues import orders
from tests.docs.pages import DOCS, blocks

PROJECT = Path(__file__).parent


def test_messages_and_tasks_are_sent_when_the_transaction_is_committed(backend: ShardqBackend) -> None:
    with transaction.atomic():
        order = place("tea")
        assert orders().counts().ready == 0
    out = StringIO()
    call_command("work_orders", idle_exit=0, stdout=out)
    assert out.getvalue() == "1 orders charged\n"
    assert backend.app.drain().worked == 1
    order.refresh_from_db()
    assert (order.paid, order.thanked) == (True, True)


@pytest.mark.parametrize("placed", [place, place_in_one_step])
def test_nothing_is_sent_when_the_transaction_is_rolled_back(backend: ShardqBackend, placed) -> None:
    queue = orders()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        placed("tea")
        1 / 0  # noqa: B018
    assert queue.counts().ready == 0
    assert backend.app.drain().worked == 0
    assert not Order.objects.exists()


def test_a_message_is_committed_in_one_step_with_the_rows_of_the_database(files: Path) -> None:
    queue = orders()
    order = place_in_one_step("tea")
    assert queue.counts().ready == 1
    call_command("work_orders", idle_exit=0, stdout=StringIO())
    order.refresh_from_db()
    assert order.paid


def test_the_code_of_the_page_is_that_of_this_project() -> None:
    found = [(info, text) for info, text in blocks(DOCS / "django.md") if info.startswith("py title=")]
    assert len(found) >= 5
    for info, text in found:
        file = PROJECT / info.removeprefix("py title=").strip('"')
        here = file.read_text().replace("tests.django_app.", "")
        for line in text.splitlines():
            if line and not line.startswith("from django.tasks import"):
                assert line in here, f"{file.name}: {line}"
