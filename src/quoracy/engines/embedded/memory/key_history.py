"""The past of a key: its older versions that are still kept, oldest first, deletions among them.

Most pasts are short: a key that was put twice, or created and deleted.  A short one is a tuple, which
the garbage collector need not look at (`untracking`); at a list it looks in every collection of its
generation.  Measured with 300,000
keys that were put twice: a full collection takes 9 ms instead of 40, and a key 30 bytes less.

A long one, of a key that everybody writes, is a deque: a list of some thousands would be moved up for
every few that go from its front.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import Final

from quoracy.engines.embedded.memory.record import Record
from quoracy.engines.embedded.memory.untracking import untracked
from quoracy.store.model import KeyValue

__all__ = ["keep", "version_at"]

# Longer ones are lists, which need not be copied to grow; and long ones take half a KiB more.
_SHORT: Final = 4
_LONG: Final = 128

_mod_revision = attrgetter("mod_revision")


def keep(record: Record, kv: KeyValue) -> None:
    """Put a version behind those of the past."""
    past = record.past
    if past is None:
        record.past = untracked((kv,))
    elif isinstance(past, list):
        past.append(kv)
        if len(past) > _LONG:
            record.past = deque(past)
    elif isinstance(past, deque):
        past.append(kv)
    elif len(past) < _SHORT:
        record.past = untracked((*past, kv))
    else:
        record.past = [*past, kv]


def version_at(record: Record, at: int) -> KeyValue | None:
    """The version that was current at a kept revision."""
    kv = record.now
    if kv is not None and kv.mod_revision <= at:
        return kv
    past = record.past
    if past is None:
        return None
    older = bisect_right(past, at, key=_mod_revision)
    if not older:
        return None
    kv = past[older - 1]
    return kv if kv.version else None
