from __future__ import annotations

from functools import partial

from django.db import transaction

import shardq
from tests.django_app.shop import tasks
from tests.django_app.shop.models import Order
from tests.django_app.shop.queues import client, orders


def place(item: str) -> Order:
    with transaction.atomic():
        order = Order.objects.create(item=item)
        send = partial(orders().producer(codec=shardq.JSON).send, {"order": order.pk})
        transaction.on_commit(partial(send, dedupe_key=f"order-{order.pk}"))
        transaction.on_commit(partial(tasks.thank.enqueue, order.pk))
    return order


def place_in_one_step(item: str) -> Order:
    with transaction.atomic():
        order = Order.objects.create(item=item)
        connection = transaction.get_connection()
        with client().transaction(connection=connection.connection) as within:
            within.queue("orders").producer(codec=shardq.JSON).send({"order": order.pk})
    return order
