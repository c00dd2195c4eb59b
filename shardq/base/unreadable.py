"""Which errors tell that stored or received bytes are no value of the type that is expected."""

from __future__ import annotations

import msgspec

__all__ = ["UNREADABLE"]

UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""The errors that msgspec's decoders raise: for text in a value that is no UTF-8, it is a bare UnicodeDecodeError."""
