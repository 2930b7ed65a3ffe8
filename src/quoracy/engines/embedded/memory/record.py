"""One key of a store, with its versions.

Apart from `records`, which is compiled: there a struct's options would be lost (see decision 0011).
"""

from __future__ import annotations

from collections import deque

import msgspec

from quoracy.store.model import KeyValue

__all__ = ["Record"]


class Record(msgspec.Struct, gc=False, eq=False):
    """The version that exists now, if there is one, and the older ones that are kept.

    past: None if there are none; see `pasts`.
    """

    key: bytes
    now: KeyValue | None
    past: tuple[KeyValue, ...] | list[KeyValue] | deque[KeyValue] | None = None
