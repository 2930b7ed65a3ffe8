"""What msgspec raises for bytes that are not what they should be; `ProtocolError` is made of these."""

from __future__ import annotations

import msgspec

__all__ = ["UNREADABLE"]

# Text that is not UTF-8 and arrays nested a thousand deep have exceptions of their own.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
