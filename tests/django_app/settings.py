"""The settings of a Django project that keeps its tasks in shardq. The tests give its files in the environment."""

from __future__ import annotations

import os

SECRET_KEY = "for tests"
USE_TZ = True
INSTALLED_APPS = ["shardq.django", "tests.django_app.shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", ":memory:"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
SHARDQ_URL = os.environ.get("SHOP_QUEUES", "sqlite:///shop.db")
TASKS = {
    "default": {"BACKEND": "shardq.django.backend.ShardqBackend", "QUEUES": ["default", "mail"]},
    "patient": {
        "BACKEND": "shardq.django.backend.ShardqBackend",
        "QUEUES": ["patient"],
        "OPTIONS": {"prefix": "shop/", "retry": 2},
    },
}
