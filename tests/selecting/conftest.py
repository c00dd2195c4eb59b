from __future__ import annotations

from tests.any_store import any_url, connect_any, name

__all__ = ["any_url", "connect_any", "name"]
