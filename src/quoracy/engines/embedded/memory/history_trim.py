"""Freeing what compaction leaves over: of each key, all versions that are older than one of it.

Not compiled, for the reason that `versions` gives.  Of a busy server this is the largest part of
cleaning up, and it looks at memory that nobody has looked at for seconds, so at nothing twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from quoracy.engines.embedded.memory.record import Record
from quoracy.store.model import KeyValue

__all__ = ["free_before"]

_mod_revision = attrgetter("mod_revision")


def _place(past: Sequence[KeyValue], kv: KeyValue) -> int:
    """Where in the past this version is."""
    # Mostly it is a deletion that nothing followed, or among the oldest.  (A search by halves looks at
    # a dozen others first, each of them somewhere in main memory: 2 us.)
    if past[-1] is kv:
        return len(past) - 1
    for at in range(min(len(past), 4)):
        if past[at] is kv:
            return at
    return bisect_left(past, kv.mod_revision, key=_mod_revision)


def _free_oldest(past: deque[KeyValue], until: int, freed: list[KeyValue]) -> None:
    """Of a long past, what is from before this revision."""
    # (From the front, one by one: the middle of a deque of 100,000 is 700 steps away, each somewhere in
    # main memory, and a search by halves took half of the time of all freeing.)
    while past and past[0].mod_revision < until:
        freed.append(past.popleft())


def free_before(
    last: Iterable[KeyValue], records: Mapping[bytes, Record], horizon: int, freed: list[KeyValue]
) -> list[Record]:
    """Free what is older than each of these versions; those that are deletions from before the horizon
    go themselves.  Returns the records of which nothing is left: no version now, and no past.
    """
    gone: list[Record] = []
    for kv in last:
        record = records.get(kv.key)
        if record is None or (past := record.past) is None:
            continue
        if kv is record.now:
            freed += past
            record.past = None
            continue
        itself = not kv.version and kv.mod_revision < horizon
        if isinstance(past, deque):
            _free_oldest(past, kv.mod_revision + itself, freed)
            if not past:
                record.past = None
                if record.now is None:
                    gone.append(record)
            continue
        older = _place(past, kv) + itself
        if older == len(past):
            freed += past
            record.past = None
            if record.now is None:
                gone.append(record)
        elif isinstance(past, list):
            freed += past[:older]
            del past[:older]
        elif older:
            freed += past[:older]
            record.past = past[older:]
    return gone
