"""How a write ended, as its client is told."""

from __future__ import annotations

import msgspec

__all__ = ["Outcome"]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What to answer.  A zxid of 0 is that of the moment the answer is sent: nothing was written."""

    err: int
    zxid: int
    body: bytes
