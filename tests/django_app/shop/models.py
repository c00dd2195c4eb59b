from __future__ import annotations

from django.db import models


class Order(models.Model):
    """What a customer has ordered."""

    item = models.TextField()
    paid = models.BooleanField(default=False)
    thanked = models.BooleanField(default=False)
