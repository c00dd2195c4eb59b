"""A sharded wide-row message queue: bulk sends, bulk reads, leases, acks by batch.

>>> client = shardq.connect(url)
>>> queue = client.create_queue("orders", visibility_timeout=30)
>>> with queue.producer() as producer:
...     ids = producer.send_many([b"one", b"two"])
>>> with queue.consumer() as consumer:
...     batch = consumer.receive(10)
...     batch.ack()
>>> len(batch)
2
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from shardq.api import *  # noqa: F403 - type checkers see all names
    from shardq.api import __all__ as __all__
else:
    # fmt: off
    _PACKAGES = {
        "aio", "broadcast", "django", "history", "metrics", "otel", "pipelines", "planning", "schedules", "service",
        "storage", "tasks", "testing", "topics", "worker",
    }
    # fmt: on

    def __getattr__(name: str) -> object:
        """Load the public names when one of them is used first, and packages: the command line needs few of them."""
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        if name in _PACKAGES:
            return _import_module(f"shardq.{name}")
        api = _import_module("shardq.api")
        public = {each: getattr(api, each) for each in ("__all__", *api.__all__)}
        globals().update(public)
        if name not in public:
            raise AttributeError(f"module 'shardq' has no attribute {name!r}")
        return public[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
