"""The app of ``INSTALLED_APPS``: it brings the command ``manage.py shardq_work``."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["ShardqConfig"]


class ShardqConfig(AppConfig):
    """The configuration of the app ``shardq.django``."""

    name = "shardq.django"
    label = "shardq"
    verbose_name = "shardq"
