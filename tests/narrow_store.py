"""A store that takes no more than some bytes in one request that moves messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from shardq.errors import MessageTooLarge
from shardq.storage.requests import Capabilities, Forward
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["NarrowStore"]

P = ParamSpec("P")
T = TypeVar("T")


class NarrowStore(WrappedStore):
    """Refuses a move of more bytes than its capabilities state, unless it is of one message."""

    most = 64 << 10

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(
            self.inner.capabilities, max_forward_bytes=self.most, settle_across_shards=False
        )

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        for request in args:
            if isinstance(request, Forward):
                bundles = request.append.bundles
                several = sum(bundle.count for bundle in bundles) > 1
                if several and sum(len(bundle.data) for bundle in bundles) > self.most:
                    raise MessageTooLarge(f"a request of more than {self.most} bytes")
        return super().call(method, do, *args, **kwargs)
