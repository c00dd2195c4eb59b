from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import close_old_connections

import shardq
from shardq.worker import Worker
from tests.django_app.shop.models import Order
from tests.django_app.shop.queues import orders


def charge(message: shardq.Message) -> None:
    close_old_connections()
    Order.objects.filter(pk=message.body["order"]).update(paid=True)


class Command(BaseCommand):
    help = "Charge orders until Ctrl-C or SIGTERM."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--idle-exit", type=float)

    def handle(self, *args: Any, **options: Any) -> None:
        worker = Worker(orders(), charge, codec="json", idle_exit=options["idle_exit"])
        self.stdout.write(f"{worker.run().worked} orders charged")
