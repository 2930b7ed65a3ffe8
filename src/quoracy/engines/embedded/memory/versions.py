"""Versions of keys: the record that holds those of one key, and what is asked of many at once.

Not compiled: the interpreter learns where a struct keeps an attribute, and compiled code looks it up
each time; besides, mypyc would lose the options of the struct (see decision 0011).  Cleaning up after
compaction is a large part of what a busy store does, and it is done by the functions here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import TypeAlias

import msgspec

from quoracy.store.model import KeyValue

__all__ = [
    "Record",
    "VersionName",
    "bytes_of",
    "free_before",
    "in_order",
    "names_of",
    "newer_of",
    "newest_by_key",
    "old_of",
    "sorted_out",
]

_mod_revision = attrgetter("mod_revision")


class Record(msgspec.Struct, gc=False, eq=False):
    """The version that exists now, if there is one, and the older ones that are kept.

    past: None if there are none, oldest first, deletions among them; `key_index.keep` adds to it.
    """

    key: bytes
    now: KeyValue | None
    past: tuple[KeyValue, ...] | list[KeyValue] | deque[KeyValue] | None = None


# A version of a key: its revision, its key, and whether it is a deletion.  No transaction writes a key
# twice, so no two versions have one name.
VersionName: TypeAlias = tuple[int, bytes, bool]


def names_of(kvs: Iterable[KeyValue]) -> list[VersionName]:
    return [(kv.mod_revision, kv.key, not kv.version) for kv in kvs]


def old_of(kvs: Iterable[KeyValue], revision: int) -> list[KeyValue]:
    """Those that were written up to a revision."""
    return [kv for kv in kvs if kv.mod_revision <= revision]


def newer_of(kvs: Mapping[bytes, KeyValue], revision: int) -> dict[bytes, KeyValue]:
    """Those that were written after a revision."""
    return {key: kv for key, kv in kvs.items() if kv.mod_revision > revision}


# Versions that are gone through in one go.
_AT_ONCE = 512


def sorted_out(
    kvs: Iterable[KeyValue], revision: int, rest: Callable[[], None] | None = None
) -> tuple[list[KeyValue], list[KeyValue], list[KeyValue]]:
    """Those that were written up to a revision and exist, the deletions until then, and the later ones.

    rest: called now and then, so that a worker thread can let others go on.  (A thread is asked to give
    up the interpreter lock only when another has waited for it for `sys.getswitchinterval()`.)
    """
    there: list[KeyValue] = []
    deletions: list[KeyValue] = []
    later: list[KeyValue] = []
    left = iter(kvs)
    while some := list(islice(left, _AT_ONCE)):
        for kv in some:
            if kv.mod_revision > revision:
                later.append(kv)
            elif kv.version:
                there.append(kv)
            else:
                deletions.append(kv)
        if rest is not None:
            rest()
    return there, deletions, later


def in_order(kvs: Sequence[KeyValue], rest: Callable[[], None]) -> tuple[list[KeyValue], list[int]]:
    """In the order they were written, as far as revisions tell, and the revision of each.

    rest: as in `sorted_out`.  (Put in order as a whole, thousands that are in no cache would keep the
    interpreter lock for milliseconds.)
    """
    revisions: list[int] = []
    for start in range(0, len(kvs), _AT_ONCE):
        revisions += map(_mod_revision, kvs[start : start + _AT_ONCE])
        rest()
    if not revisions:
        return [], []
    first, last = min(revisions), max(revisions)
    width = (last - first) // (len(kvs) // _AT_ONCE + 1) + 1
    parts: list[list[KeyValue]] = [[] for _ in range((last - first) // width + 1)]
    for start in range(0, len(kvs), _AT_ONCE):
        end = start + _AT_ONCE
        for kv, revision in zip(kvs[start:end], revisions[start:end], strict=True):
            parts[(revision - first) // width].append(kv)
        rest()
    ordered: list[KeyValue] = []
    for part in parts:
        part.sort(key=_mod_revision)
        ordered += part
        rest()
    revisions.sort()
    return ordered, revisions


def bytes_of(kvs: Iterable[KeyValue]) -> int:
    """Keys and values."""
    size = 0
    for kv in kvs:
        size += len(kv.key) + len(kv.value)
    return size


def newest_by_key(
    revisions: Iterable[Sequence[KeyValue]], versions_max: int, skip: int = 0
) -> tuple[dict[bytes, KeyValue], int, int]:
    """The last version of each key among the first `versions_max`; of how many whole revisions these
    are, and how far into the next one they go.

    skip: how many of the first revision were gone through before.
    """
    last: dict[bytes, KeyValue] = {}
    count, left = 0, versions_max
    for kvs in revisions:
        some = kvs[skip : skip + left] if skip or len(kvs) > left else kvs
        for kv in some:
            last[kv.key] = kv
        left -= len(some)
        if skip + len(some) < len(kvs):
            return last, count, skip + len(some)
        count, skip = count + 1, 0
        if left <= 0:
            break
    return last, count, 0


# -- freeing what compaction leaves over --------------------------------------------------------


def _place(past: Sequence[KeyValue], kv: KeyValue) -> int:
    """Where in the past this version is."""
    # Mostly it is a deletion that nothing followed, or among the oldest.  (A binary search looks at a
    # dozen others first, each of them somewhere in main memory.)
    if past[-1] is kv:
        return len(past) - 1
    for at in range(min(len(past), 4)):
        if past[at] is kv:
            return at
    return bisect_left(past, kv.mod_revision, key=_mod_revision)


def _free_oldest(past: deque[KeyValue], until: int, freed: list[KeyValue]) -> None:
    """Of a long past, what is from before this revision."""
    # (From the front, one by one: the middle of a long deque is many steps away, each somewhere in main
    # memory.)
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
