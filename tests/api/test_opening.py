"""Stores are found by their URL's scheme."""

from __future__ import annotations

import sys

import pytest

import shardq


def test_a_store_whose_driver_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("shardq.storage.cassandra")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cassandra", None)
    with pytest.raises(shardq.InvalidSetting, match=r"pip install 'shardq\[cassandra\]'"):
        shardq.connect("cassandra://127.0.0.1/shardq")
