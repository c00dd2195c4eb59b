"""The errors for stored or received bytes that are no value of the expected type."""

from __future__ import annotations

import msgspec

__all__ = ["UNREADABLE"]

UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""The errors that msgspec's decoders raise: for text in a value that is not UTF-8, it is a bare UnicodeDecodeError."""
