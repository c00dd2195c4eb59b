"""The apps of the backends of Django's tasks, by their aliases: ``shardq work --tasks shardq.django.worker:default``.

The first use sets up Django, whose settings ``DJANGO_SETTINGS_MODULE`` names.
"""

from __future__ import annotations

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from shardq.tasks import Tasks


def __getattr__(alias: str) -> Tasks:
    """Return the app of a backend. Raises AttributeError for what is none of shardq's."""
    if alias.startswith("_"):
        raise AttributeError(alias)
    if not apps.ready:
        django.setup()
    from shardq.django.backend import backend_named  # noqa: PLC0415 - it may need the settings

    try:
        return backend_named(alias).app
    except ImproperlyConfigured as error:
        raise AttributeError(str(error)) from error
