"""Changes of a queue's settings that are made at the same time are all kept, by threads of one client, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import shardq
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock


class Overtaken(WrappedStore):
    """Lets something happen once, while a change of the layout is prepared."""

    meanwhile: Callable[[], object] | None = None

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if method == "create_shards" and self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        return super().call(method, do, *args, **kwargs)


def test_a_change_that_another_thread_has_read_already_is_kept(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/queue.db?synchronous=normal", ManualClock()
    store = Overtaken(open_store(url, clock))
    with shardq.Client(store) as client, shardq.connect(url, clock=clock) as other:
        queue = client.create_queue("q", shards=1)

        def meanwhile() -> None:
            other.queue("q").alter(visibility_timeout=99)
            other.schedules.create("s", queue="q", every=60)
            client.queue("q")  # reads the settings again, as any call of another thread may

        store.meanwhile = meanwhile
        queue.alter(shards=4)
        assert (queue.settings.shards, queue.settings.visibility_timeout) == (4, 99)
        assert [each.id for each in other.schedules.list("q")] == ["s"]
