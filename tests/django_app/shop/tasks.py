from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import shardq

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

from tests.django_app.shop.models import Order


@task(queue_name="mail", priority=10)
def thank(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    Order.objects.filter(pk=order_id).update(thanked=True)
    return f"Thank you for the {order.item}!"


@task
async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


@task(takes_context=True)
def attempt(context: Any, *, of: str) -> list[object]:
    return [of, context.attempt, context.task_result.id]


@task(backend="patient", queue_name="patient", takes_context=True)
def second_time_lucky(context: Any) -> str:
    if context.attempt < 2:
        raise ValueError("not yet")
    return "now"


@task(backend="patient", queue_name="patient")
def never() -> None:
    raise ValueError("no such tea")


@task(backend="patient", queue_name="patient")
def slow() -> None:
    for _ in range(1_000):
        time.sleep(0.01)


@task(backend="patient", queue_name="patient")
async def slow_coroutine() -> None:
    await asyncio.sleep(10)


@task(backend="patient", queue_name="patient")
def leave() -> None:
    sys.exit(3)


@task(backend="patient", queue_name="patient")
def give_up() -> None:
    raise shardq.DeadLetter("sold out")


@task
def unwritable() -> object:
    return object()
